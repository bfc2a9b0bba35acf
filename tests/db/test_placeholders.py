import pytest

from inboxkit._db.mysql_values import compose
from inboxkit._db.placeholders import check_arguments, parse
from inboxkit.errors import DatabaseError


@pytest.mark.parametrize(
    ("text", "translated", "count"),
    [
        ("SELECT 1", "SELECT 1", 0),
        ("SELECT $1, $2, $1", "SELECT ?1, ?2, ?1", 2),
        ("SELECT $12", "SELECT ?12", 12),
        ("SELECT '$1', $1", "SELECT '$1', ?1", 1),
        ("SELECT 'it''s $1', $1", "SELECT 'it''s $1', ?1", 1),
        ('SELECT "$1" FROM t WHERE a = $1', 'SELECT "$1" FROM t WHERE a = ?1', 1),
        ('SELECT "a""$1"', 'SELECT "a""$1"', 0),
        ("SELECT `$1`, $1", "SELECT `$1`, ?1", 1),
        ("SELECT [$1], $1", "SELECT [$1], ?1", 1),
        ("SELECT $1 -- and $2\n, $2", "SELECT ?1 -- and $2\n, ?2", 2),
        ("SELECT /* $1 \n $2 */ $1", "SELECT /* $1 \n $2 */ ?1", 1),
        ("SELECT /* /* */ $1", "SELECT /* /* */ ?1", 1),
        ("SELECT a$1 FROM t", "SELECT a$1 FROM t", 0),
        ("SELECT 'unterminated $1", "SELECT 'unterminated $1", 0),
        ("SELECT 1 /* unterminated $1", "SELECT 1 /* unterminated $1", 0),
        ("SELECT ä.ö FROM ä WHERE ö=$1", "SELECT ä.ö FROM ä WHERE ö=?1", 1),
        ("SELECT $$ $1 $$", "SELECT $$ ?1 $$", 1),  # no quotes of SQLite
    ],
)
def test_sqlite_placeholders_are_translated_outside_of_literals(
    text: str, translated: str, count: int
) -> None:
    parsed = parse(text, "sqlite")

    assert (parsed.text, parsed.count) == (translated, count)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT $1, '$2', \"$3\"", 1),
        ("SELECT a[$1]", 1),
        ("SELECT $$ $1 ' $$, $2", 2),
        ("SELECT $tag$ $1 $$ $2 $tag$, $1", 1),
        (r"SELECT E'\' $2', $1", 1),
        (r"SELECT 'C:\', $1", 1),
        ("SELECT /* /* $2 */ $3 */ $1", 1),
        ("SELECT foo$1", 0),
        ("SELECT $1::text || $2", 2),
    ],
)
def test_postgres_text_is_left_alone_and_counted(text: str, count: int) -> None:
    parsed = parse(text, "postgres")

    assert (parsed.text, parsed.count) == (text, count)


@pytest.mark.parametrize(
    ("text", "composed"),
    [
        ("SELECT $2, $1, $1", b"SELECT 2, 'a', 'a'"),
        ("SELECT '$1', \"$1\", `$1`, $1", b"SELECT '$1', \"$1\", `$1`, 'a'"),
        (r"SELECT 'it\'s $2', $1", rb"SELECT 'it\'s $2', 'a'"),
        (r"SELECT 'it''s \\', $1", rb"SELECT 'it''s \\', 'a'"),
        (r"SELECT `\`, $1", rb"SELECT `\`, 'a'"),
        ("SELECT 1 -- $1\n, $1", b"SELECT 1 -- $1\n, 'a'"),
        ("SELECT 1 # $1'\n, $1", b"SELECT 1 # $1'\n, 'a'"),
        ("SELECT 1--$2 /* $1 /* */", b"SELECT 1--2 /* $1 /* */"),
        ("SELECT a$1, é$1, '%s' % $2", "SELECT a$1, é$1, '%s' % 2".encode()),
        ("SELECT '$1", b"SELECT '$1"),
    ],
)
def test_mysql_values_are_written_outside_of_literals(text: str, composed: bytes) -> None:
    assert compose(parse(text, "mysql"), ("a", 2), backslashes=True) == composed


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("SELECT 1", False),
        ("  -- note\n select 1", False),
        ("/* INSERT */ VALUES (1)", False),
        ("INSERT INTO t VALUES (1)", True),
        ("WITH a AS (SELECT 'delete') SELECT * FROM a", False),
        ("WITH a AS (SELECT 1) UPDATE t SET x = 1", True),
        ("with a as (delete from t returning *) select * from a", True),
        ("CREATE TABLE t (x)", True),
        ("VACUUM", True),
        ("PRAGMA journal_mode", False),
        ("EXPLAIN DELETE FROM t", False),
        ("EXPLAIN ANALYZE DELETE FROM t", True),
        ("COMMIT", False),
        ("", False),
    ],
)
def test_what_writes(text: str, writes: bool) -> None:
    assert parse(text, "sqlite").writes is writes
    assert parse(text, "postgres").writes is writes
    assert parse(text, "mysql").writes is writes


ENDS = [
    ("COMMIT", "COMMIT", "COMMIT", "COMMIT"),
    ("/* a */ commit and chain; -- x", "COMMIT", "COMMIT", "COMMIT"),
    ("UPDATE t SET x = ';'; ROLLBACK WORK", "ROLLBACK", "ROLLBACK", "ROLLBACK"),
    ("ROLLBACK TO SAVEPOINT a", "", "", ""),
    ("ROLLBACK TRANSACTION TO a; RELEASE a", "", "", ""),
    ("END", "END", "END", "END"),
    ("BEGIN", "", "", "BEGIN"),
    ("START TRANSACTION READ ONLY", "", "", "START"),
    (
        "PREPARE TRANSACTION 'a'",
        "PREPARE TRANSACTION",
        "PREPARE TRANSACTION",
        "PREPARE TRANSACTION",
    ),
    ("PREPARE commit AS SELECT 1", "", "", ""),
    ("SAVEPOINT commit", "", "", ""),
    ("SELECT CASE WHEN a THEN b END FROM t", "", "", ""),
    ("CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; END", "", "", ""),
    ("SELECT 'COMMIT'; SELECT \"COMMIT\"", "", "", ""),
    ("", "", "", ""),
]


@pytest.mark.parametrize(("text", "sqlite", "postgres", "mysql"), ENDS)
def test_what_ends_the_transaction(text: str, sqlite: str, postgres: str, mysql: str) -> None:
    assert parse(text, "sqlite").ends_transaction == sqlite
    assert parse(text, "postgres").ends_transaction == postgres
    assert parse(text, "mysql").ends_transaction == mysql
    assert parse("SELECT $$; COMMIT; $$", "postgres").ends_transaction == ""


def test_a_wrong_number_of_arguments_is_said_before_sending() -> None:
    with pytest.raises(DatabaseError, match=r"2 placeholders \(\$1 to \$2\), and 3 arguments"):
        check_arguments(parse("SELECT $1, $2", "sqlite"), (1, 2, 3), statement="fetch")
    with pytest.raises(DatabaseError, match="no placeholder"):
        check_arguments(parse("SELECT '$1'", "postgres"), (1,), statement="fetch")
