"""`inboxkit check`: what would stop a start, and what works but is wrong."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_kit import (
    CONTROL,
    Cli,
    Mail,
    as_nobody,
    dialect_of,
    factory,
    lease_spec,
    make,
    on,
    rows,
    subscriber_of,
)

from inboxkit import (
    Broker,
    Column,
    Database,
    InboxQueue,
    InboxSpec,
    Service,
    SystemClock,
    subscriber,
)

NAME = "mails"


def check(cli: Cli, service: Any, url: str, *, status: int = 0) -> list[tuple[str, str, str]]:
    document = cli.json("check", cli.module(service=service), "--url", url, status=status)
    assert document["ok"] == (status == 0)
    return [(one["severity"], one["subject"], one["text"]) for one in document["findings"]]


def alone(spec: InboxSpec, **settings: Any) -> Any:
    return factory(InboxQueue(spec, NAME, Mail), control=False, **settings)


def run(url: str, *statements: str) -> None:
    async def work(database: Database) -> None:
        for statement in statements:
            await database.execute(statement)

    on(url, work)


def test_nothing_is_found_in_a_table_that_is_as_it_should_be(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    service = alone(spec, max_attempts=3, dead_letter="dead")
    assert check(cli, service, db_url) == []
    result = cli.run("check", cli.module(service=service), "--url", db_url)
    assert result.stdout == "mailer: 0 errors, 0 warnings, 0 notes\n"


def test_what_would_stop_a_start_is_found_for_every_table_at_once(
    cli: Cli, db_url: str, table: str
) -> None:
    good, without, mistyped = (lease_spec(f"{table}{n}") for n in range(3))
    make(db_url, good, without, mistyped)
    quote = dialect_of(db_url).quote
    run(db_url, *(f"DROP TABLE IF EXISTS {quote(name)}" for name in (without.table, CONTROL)))
    queues = [InboxQueue(good, "good", Mail), InboxQueue(without, "without", Mail)]
    wrong = lease_spec(mistyped.table, columns=(Column("nothing", type=int),))
    queues += [InboxQueue(wrong, "wrong", Mail), InboxQueue(without, "too", Mail)]
    found = check(cli, factory(*queues), db_url, status=1)
    errors = [(subject, text) for severity, subject, text in found if severity == "error"]
    assert [subject for subject, _ in errors] == ["control table", "without", "wrong"]
    assert "does not exist" in errors[0][1]
    assert "CREATE TABLE" in errors[0][1]
    assert f"table {without.table!r} does not exist" in errors[1][1]
    assert "has no column 'nothing'" in errors[2][1]
    assert [text for severity, _, text in found if severity == "note"]


def test_start_up_hooks_are_named_and_not_run(cli: Cli, sqlite_url: str) -> None:
    def service(url: str) -> Service:
        app = alone(lease_spec("jobs"))(url)

        async def create_schema(database: Database) -> None:
            raise AssertionError

        app.on_startup(create_schema)
        assert isinstance(app, Service)
        return app

    make(sqlite_url, lease_spec("others"))
    ((severity, _, text),) = check(cli, service, sqlite_url, status=1)
    assert severity == "error"
    assert "the start-up hooks, create_schema, may make it: check runs none" in text


def test_a_dead_letter_table_that_does_not_fit_is_found(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table, group=False)
    dead = lease_spec(f"{table} dead", group=False, headers=False)
    make(db_url, spec, dead)
    service = alone(spec, max_attempts=3, dead_letter=dead.table)
    ((severity, _, text),) = check(cli, service, db_url, status=1)
    assert severity == "error"
    assert f"dead-letter table {dead.table!r} lacks column 'headers'" in text


def test_a_dead_letters_name_that_is_too_long_is_found(
    cli: Cli, table: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("shared_mariadb_url")
    spec = lease_spec(table)
    make(url, spec)
    found = check(cli, alone(spec, max_attempts=3, dead_letter="d" * 300), url, status=1)
    assert "cannot hold the name" in found[0][2]


def test_missing_indexes_are_told_with_the_statement_that_makes_them(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    dialect = dialect_of(db_url)
    indexes = dialect.indexes(spec)
    for index in indexes:
        name = index.text.split("INDEX ", 1)[1].split(" ON ", 1)[0]
        on_table = f" ON {dialect.quote(table)}" if dialect.name == "mysql" else ""
        run(db_url, f"DROP INDEX {name}{on_table}")
    service = alone(spec, max_attempts=3, dead_letter="dead")
    found = check(cli, service, db_url, status=1)
    assert [severity for severity, _, _ in found] == ["warning", "note"][: len(indexes)]
    for (_, subject, text), index in zip(found, indexes, strict=True):
        assert subject == NAME
        assert text.endswith(index.text)
    run(db_url, *(text.rpartition("; ")[2] for _, _, text in found))
    assert check(cli, service, db_url) == []


OTHERS = {
    "more columns": ("name", "priority", "due", "id", "attempt"),
    "fewer columns": ("name", "priority", "due"),
    "a lease between": ("name", "locked", "priority", "due", "id"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_index_that_serves_is_good(case: str, cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    columns = ", ".join(OTHERS[case])
    run(sqlite_url, "DROP INDEX jobs_queue", f"CREATE INDEX own ON jobs ({columns})")
    assert check(cli, alone(spec, max_attempts=3, dead_letter="dead"), sqlite_url) == []


@pytest.mark.parametrize(
    "columns",
    ["priority, due, name", "name, due, priority", "name", "due", "locked, priority, due"],
)
def test_an_index_that_does_not_serve_is_none(columns: str, cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    run(sqlite_url, "DROP INDEX jobs_queue", f"CREATE INDEX own ON jobs ({columns})")
    service = alone(spec, max_attempts=3, dead_letter="dead")
    ((severity, _, _),) = check(cli, service, sqlite_url, status=1)
    assert severity == "warning"


def test_where_finished_rows_stay_they_must_not_be_walked_over(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", processed_at=Column("done"))
    make(sqlite_url, spec)
    service = alone(spec, max_attempts=3, dead_letter="dead")
    run(sqlite_url, "DROP INDEX jobs_queue", "CREATE INDEX own ON jobs (name, priority, due)")
    ((severity, _, _),) = check(cli, service, sqlite_url, status=1)
    assert severity == "warning"
    run(sqlite_url, "DROP INDEX own", "CREATE INDEX own ON jobs (name, done, priority, due)")
    assert check(cli, service, sqlite_url) == []


TIMES = {
    "no zone": "2030-01-01T00:00:00.000000",
    "another zone": "2030-01-01T00:00:00.000000+02:00",
    "Z": "2030-01-01T00:00:00.000000Z",
    "a blank": "2030-01-01 00:00:00.000000+00:00",
    "two digits": "2030-01-01T00:00:00.00+00:00",
    "seven digits": "2030-01-01T00:00:00.0000000+00:00",
    "no fraction": "2030-01-01T00:00:00+00:00",
    "a number": 1893456000,
    "empty": "",
    "bytes": b"2030-01-01T00:00:00.000000+00:00",
}


@pytest.mark.parametrize("column", ["due", "locked"])
def test_times_that_sort_wrong_are_found(column: str, cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", id=Column("id", type=str))
    make(sqlite_url, spec)
    good = [f"2030-01-01T00:00:00.{'123456'[:n]}+00:00" for n in (3, 4, 5, 6)]
    service = alone(spec, max_attempts=3, dead_letter="dead")
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as database:
        insert = f"INSERT INTO jobs (id, name, priority, account, headers, payload, {column}) "
        insert += "VALUES (?, 'mails', 1, 'k', '{}', x'', ?)"
        database.executemany(insert, [(f"good {n}", text) for n, text in enumerate([*good, None])])
        database.commit()
        assert check(cli, service, sqlite_url) == []
        for case, value in TIMES.items():
            database.execute(insert, (case, value))
            database.commit()
            ((severity, _, text),) = check(cli, service, sqlite_url, status=1)
            assert severity == "warning"
            assert f"whose {column!r} is no canonical time text" in text
            assert f"(id {case!r})" in text
            database.execute("DELETE FROM jobs WHERE id = ?", (case,))
            database.commit()
    database.close()


class Wrong(SystemClock):
    """A host whose clock is 40 s ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=40)


@pytest.mark.parametrize("server", ["postgres", "mariadb", "mysql"])
def test_a_clock_that_is_wrong_is_found(
    server: str, cli: Cli, table: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"shared_{server}_url")
    spec = lease_spec(table)
    make(url, spec)

    def service(url: str) -> Service:
        app = Service("mailer", Broker(Database(url, clock=Wrong())))
        app.include(subscriber_of(InboxQueue(spec, NAME, Mail)), max_attempts=3, dead_letter="dead")
        return app

    ((severity, subject, text),) = check(cli, service, url, status=1)
    assert (severity, subject) == ("warning", "clock")
    assert "s ahead of the database server's, and leases bear 3 s" in text
    assert text.startswith(("this host's clock is 40.0", "this host's clock is 39.9"))


def test_no_cap_is_a_note_but_not_of_a_queue_of_dead_letters(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    dead = InboxQueue(spec, "dead", Mail)
    assert [text[:6] for _, _, text in check(cli, alone(spec), sqlite_url)] == ["no cap"]
    service = factory(InboxQueue(spec, NAME, Mail), dead, dead={NAME: "dead"}, control=False)
    assert check(cli, service, sqlite_url) == []


def test_a_cap_in_the_row_lock_form_is_noted(
    cli: Cli, table: str, shared_postgres_url: str
) -> None:
    spec = lease_spec(table, locked_until=False)
    make(shared_postgres_url, spec)
    service = alone(spec, max_attempts=3, dead_letter="dead")
    ((severity, _, text),) = check(cli, service, shared_postgres_url)
    assert severity == "note"
    assert "a delivery whose process dies is not counted" in text


def test_more_handlers_than_the_pool_has_sessions_for_are_found(
    cli: Cli, table: str, shared_postgres_url: str
) -> None:
    spec = lease_spec(table, locked_until=False)
    make(shared_postgres_url, spec)
    nine, ten = (alone(spec, workers=workers) for workers in (9, 10))
    assert [finding[0] for finding in check(cli, nine, shared_postgres_url)] == ["note"]
    found = check(cli, ten, shared_postgres_url, status=1)
    assert "10 handlers at a time keep a connection each" in found[0][2]
    assert "pool_size=11" in found[0][2]


def test_a_form_that_the_database_does_not_have_is_an_error(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", locked_until=False)
    make(sqlite_url, lease_spec("jobs"))
    found = check(cli, alone(spec), sqlite_url, status=1)
    assert found[0][0] == "error"
    assert "locks no rows" in found[0][2] or "row lock" in found[0][2]


def test_a_folder_that_cannot_be_written_is_an_error(cli: Cli, open_folder: Path) -> None:
    spec = lease_spec("jobs")
    url = f"sqlite:///{open_folder / 'inbox.db'}"
    make(url, spec)
    run(url, "PRAGMA journal_mode = DELETE")
    with as_nobody():
        found = check(cli, alone(spec, max_attempts=3, dead_letter="dead"), url, status=1)
    assert [severity for severity, _, _ in found] == ["error"]
    assert str(open_folder) in found[0][2]
    assert "-wal" in found[0][2]


def test_a_table_in_another_schema_is_the_one_that_is_checked(
    cli: Cli, table: str, shared_postgres_url: str
) -> None:
    schema = "Jobs-EU"
    here, there = lease_spec(table, headers=False), lease_spec(table, schema=schema)
    run(shared_postgres_url, f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    make(shared_postgres_url, here, there)
    service = alone(there, max_attempts=3, dead_letter="dead")
    assert check(cli, service, shared_postgres_url) == []
    assert rows(shared_postgres_url, there, "headers") == []


def test_findings_are_lines(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    run(sqlite_url, "DROP INDEX jobs_queue")
    result = cli.run("check", cli.module(service=alone(spec)), "--url", sqlite_url, status=1)
    first, second, last = result.stdout.splitlines()
    assert first.startswith("warning: mails: table 'jobs' has no index for this")
    assert second.startswith("note: mails: no cap: ")
    assert last == "mailer: 0 errors, 1 warning, 1 note"


def test_an_advisory_lock_service_may_run_beside_its_check(cli: Cli, sqlite_url: str) -> None:
    from inboxkit._db.process_keys import keys_of_file

    spec = lease_spec("jobs", locked_until=False, advisory_lock="jobs-{id}")
    make(sqlite_url, spec)
    keys = keys_of_file(sqlite_url.removeprefix("sqlite:///"))
    try:
        assert [one[0] for one in check(cli, alone(spec), sqlite_url)] == ["note"]
    finally:
        keys.close()


def test_every_group_is_checked_too(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)

    def service(url: str) -> Service:
        app = Service("mailer", Broker(url))

        @subscriber(InboxQueue.every_group(spec, Mail))
        async def handle(mail: Mail) -> None: ...

        app.include(handle, max_attempts=3, dead_letter="{group}.dead")
        return app

    assert check(cli, service, sqlite_url) == []


LETTERS = {
    "itself": ({"a": "a"}, "its dead letters would go back into itself"),
    "a loop": ({"a": "b", "b": "a"}, "dead letters form a loop"),
}


@pytest.mark.parametrize("case", LETTERS)
def test_dead_letters_that_lead_nowhere_are_told_in_a_line(
    case: str, cli: Cli, sqlite_url: str
) -> None:
    dead, text = LETTERS[case]
    queues = [InboxQueue(lease_spec("jobs"), name, Mail) for name in ("a", "b")]
    name = cli.module(service=factory(*queues, dead=dead))
    result = cli.run("check", name, "--url", sqlite_url, status=1)
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
