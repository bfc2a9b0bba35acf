"""What a server takes for the time: the one question that is about no table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from .statement import Answer, Statement

__all__ = ["ask", "read"]

_TEXTS: Final = {
    # Not now(): that is the start of the transaction, and locks were waited for since.
    "postgres": "SELECT statement_timestamp()",
    "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}


def ask(dialect: str) -> Statement:
    """The statement whose answer `read` understands."""
    return Statement("clock", _TEXTS[dialect])


def read(answer: Answer) -> datetime:
    """The server's time: aware, UTC; SQLite knows milliseconds."""
    value = answer.rows[0][0]
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
