"""Errors that a server raises because it is asked to: the real ones, as the driver maps them."""

from __future__ import annotations

from typing import Final, Literal

from inboxkit._sql.statement import Statement
from inboxkit.abc import DialectName

__all__ = ["ServerError", "check_error", "statements_that_raise"]

ServerError = Literal["busy", "deadlock", "serialization failure"]

_POSTGRES: Final[dict[ServerError, str]] = {
    "busy": "55P03",
    "deadlock": "40P01",
    "serialization failure": "40001",
}
_MYSQL: Final[dict[ServerError, tuple[str, int]]] = {
    "busy": ("HY000", 1205),
    "deadlock": ("40001", 1213),
}


def check_error(error: ServerError, dialect: DialectName) -> None:
    """Refuse what this database never answers.

    Raises:
        ValueError: It has no such error.
    """
    if dialect == "sqlite" and error != "busy":
        raise ValueError(
            f"SQLite has one writer at a time, and so no {error}: use faults.busy() there"
        )
    if dialect == "mysql" and error == "serialization failure":
        raise ValueError(
            "MySQL and MariaDB answer a conflict with a deadlock or a lock wait timeout: use "
            "faults.deadlock() or faults.busy() there"
        )


def statements_that_raise(error: ServerError, dialect: DialectName, name: str) -> list[Statement]:
    """What to send in place of a statement of that name; the last one fails."""
    told = f"{error}, asked for by the test"
    if dialect == "postgres":
        raising = f"BEGIN RAISE EXCEPTION '{told}' USING ERRCODE = '{_POSTGRES[error]}'; END"
        texts = [f"DO $$ {raising} $$"]
    else:
        state, number = _MYSQL[error]
        texts = [f"SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{told}'"]
        if error == "deadlock":  # who loses one has lost all of its transaction
            texts.insert(0, "ROLLBACK")
    return [Statement(name, text, returns_rows=False) for text in texts]
