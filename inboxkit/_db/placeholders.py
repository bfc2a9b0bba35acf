"""Reads a statement's text: its ``$1`` placeholders, its first keyword, whether it writes or ends a
transaction.

Pure text. Literals, quoted identifiers, comments and (on PostgreSQL) dollar-quoted strings are
passed over, by the rules of each dialect; MariaDB's and MySQL's as their default SQL mode has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from inboxkit.abc import DialectName
from inboxkit.errors import DatabaseError

__all__ = ["Parsed", "check_arguments", "parse"]

# A doubled quote reads as two literals side by side, which comes to the same. An unterminated one
# reaches to the end: the database then says what is wrong with it.
_COMMON: Final = r"""
    (?P<comment>   --[^\n]* )
  | (?P<block>     /\* )
  | (?P<quoted>    '[^']*(?:'|\Z) | "[^"]*(?:"|\Z) {quoted} )
  | {dialect}
    (?P<word>      [^\W\d][\w$]* )
  | (?P<end>       ; )
  | \$(?P<number>  \d+ )
"""
_PATTERNS: Final[dict[DialectName, re.Pattern[str]]] = {
    "sqlite": re.compile(
        _COMMON.format(quoted=r"| `[^`]*(?:`|\Z) | \[[^\]]*(?:\]|\Z)", dialect=""),
        re.VERBOSE | re.DOTALL,
    ),
    "mysql": re.compile(
        r"""
            (?P<comment>   (?:\#|--(?=[\s\0]|\Z))[^\n]* )
          | (?P<block>     /\* )
          | (?P<quoted>    '(?:[^'\\]+|\\.)*(?:'|\Z) | "(?:[^"\\]+|\\.)*(?:"|\Z) | `[^`]*(?:`|\Z) )
          | (?P<word>      [^\W\d][\w$]* )
          | (?P<end>       ; )
          | \$(?P<number>  \d+ )
        """,
        re.VERBOSE | re.DOTALL,
    ),
    "postgres": re.compile(
        _COMMON.format(
            quoted="",
            dialect=r"""
                (?P<escaped> [eE]'(?:[^'\\]+|''|\\.)*(?:'|\Z) )
              | (?P<dollar>  (?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?:(?P=tag)|\Z) )
              |""",
        ),
        re.VERBOSE | re.DOTALL,
    ),
}
_OTHER_PLACEHOLDER: Final = re.compile(r"\?\d*|%s|%\(\w+\)s|(?<![:\w]):[^\W\d]\w*|@[^\W\d]\w*")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*")
_DELIMITER: Final = re.compile(r"/\*|\*/")

_LONGEST_KEPT: Final = 16_384
"""Characters of a text that is kept in the cache: those with values written into them are longer."""

_READING: Final = frozenset(
    {"SELECT", "VALUES", "TABLE", "SHOW", "EXPLAIN", "PRAGMA", "DESCRIBE", "DESC", "DO"}
)
_CONTROL: Final = frozenset(
    {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "SET"}
    | {"ATTACH", "DETACH", "KILL", "USE"}
)
_WRITING: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"})


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement's text, read once."""

    text: str
    """What the driver takes: ``?1`` in place of ``$1`` on SQLite, else unchanged."""
    count: int
    """The highest placeholder's number; 0 where there is none."""
    keyword: str
    """The first word, in upper case; empty where there is none."""
    writes: bool
    """Whether it may change rows or tables, as far as its words tell (a SELECT that calls a
    function which writes is not noticed)."""
    ends_transaction: str = ""
    """The keyword of the first statement in it that ends the transaction that it is sent in; empty
    where there is none, as far as its words tell (a procedure may end it too, and on MariaDB and MySQL
    a statement that changes a table's definition)."""
    pieces: tuple[str, ...] = ()
    """Not on SQLite: the text between the placeholders, one piece more than `numbers`."""
    numbers: tuple[int, ...] = ()
    """And their numbers, in the order in which they stand."""


def parse(text: str, dialect: DialectName) -> Parsed:
    """Read one statement's text; one of common length is read once."""
    return (_parsed if len(text) <= _LONGEST_KEPT else _parsed.__wrapped__)(text, dialect)


@lru_cache(maxsize=1024)
def _parsed(text: str, dialect: DialectName) -> Parsed:
    pattern = _PATTERNS[dialect]
    pieces: list[str] = []
    between: list[str] = []
    numbers: list[int] = []
    statements: list[list[str]] = [[]]
    count = position = copied = 0
    while (token := pattern.search(text, position)) is not None:
        position = token.end()
        match token.lastgroup:
            case "block":
                position = _end_of_comment(text, position, nested=dialect == "postgres")
            case "word":
                statements[-1].append(token[0].upper())
            case "end":
                statements.append([])
            case "number":
                count = max(count, int(token["number"]))
                if dialect == "sqlite":
                    pieces += text[copied : token.start()], "?", token["number"]
                    copied = position
                else:
                    between.append(text[copied : token.start()])
                    numbers.append(int(token["number"]))
                    copied = position
            case _:
                pass
    words = [word for statement in statements for word in statement]
    keyword = words[0] if words else ""
    return Parsed(
        "".join((*pieces, text[copied:])) if pieces else text,
        count,
        keyword,
        _writes(keyword, words),
        _ends_transaction(statements, dialect),
        () if dialect == "sqlite" else (*between, text[copied:]),
        tuple(numbers),
    )


def check_arguments(parsed: Parsed, parameters: Sequence[Any], *, statement: str) -> None:
    """Refuse a wrong number of arguments before anything is sent, on both databases alike.

    Raises:
        DatabaseError: The statement has other placeholders; nothing was sent.
    """
    if len(parameters) != parsed.count:
        placeholders = {0: "no placeholder", 1: "one placeholder ($1)"}.get(
            parsed.count, f"{parsed.count} placeholders ($1 to ${parsed.count})"
        )
        hint = ""
        given = "1 argument was" if len(parameters) == 1 else f"{len(parameters)} arguments were"
        bare = _QUOTED.sub(" ", parsed.text)
        if not parsed.count and (found := _OTHER_PLACEHOLDER.search(bare)):
            hint = f"; write $1, $2, … on every database, in place of {found[0]!r}"
        elif len(parameters) == 1 and isinstance(parameters[0], tuple | list):
            hint = "; give the values one by one, not in a list or tuple"
        raise DatabaseError(
            f"{statement}: the statement has {placeholders}, and {given} "
            f"given{hint}; nothing was sent",
            statement=statement,
        )


def _end_of_comment(text: str, position: int, *, nested: bool) -> int:
    """The end of a block comment whose opening ends at `position`; PostgreSQL nests them."""
    depth = 1
    while depth and (delimiter := _DELIMITER.search(text, position)) is not None:
        position = delimiter.end()
        if delimiter[0] == "*/":
            depth -= 1
        elif nested:
            depth += 1
    return len(text) if depth else position


def _ends_transaction(statements: Sequence[Sequence[str]], dialect: DialectName) -> str:
    for words in statements:
        match [word for word in words if word not in ("WORK", "TRANSACTION")]:
            case ["CREATE", *_]:
                break  # of a trigger or a function: what follows may be its body
            case ["ROLLBACK", "TO", *_]:
                pass
            case ["COMMIT" | "END" | "ROLLBACK" | "ABORT" as keyword, *_]:
                return keyword
            case ["BEGIN" | "START" as keyword, *_] if dialect == "mysql":
                return keyword  # commits what is open, and begins another
            case ["PREPARE", *_] if words[1:2] == ["TRANSACTION"]:
                return "PREPARE TRANSACTION"
            case _:
                pass
    return ""


def _writes(keyword: str, words: list[str]) -> bool:
    if keyword == "WITH" or (keyword == "EXPLAIN" and "ANALYZE" in words[:4]):
        return not _WRITING.isdisjoint(words)
    return keyword != "" and keyword not in _READING and keyword not in _CONTROL
