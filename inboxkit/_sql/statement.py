"""A statement, its answer, and scripts of statements: text and values, no I/O.

A script is a generator that yields statements and is sent their answers. A driver runs it: in one
hop of a thread where the database is a library, statement by statement where it is a server. So the
SQL of a whole transaction stays pure, and its clock is read where it has to be: after the
connection and the write lock are had.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

__all__ = ["Answer", "Reading", "Script", "Statement", "Steps", "Transaction"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement, with ``$1`` placeholders on every database."""

    name: str
    """What it is for, such as ``"claim"``; in errors, recordings and schedules."""
    text: str
    """The SQL, identifiers quoted by the dialect."""
    parameters: tuple[Any, ...] = ()
    """Values as the database's drivers take them: the dialect has encoded them already."""
    returns_rows: bool = True
    """Whether it answers rows (a SELECT, or RETURNING) that somebody reads."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement answered."""

    columns: tuple[str, ...] = ()
    """Names of the columns; may be empty where no row came."""
    rows: Sequence[tuple[Any, ...]] = ()
    """The rows, as the driver gives their values."""
    rowcount: int = -1
    """Rows written, or -1 where the driver did not say."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a clock."""

    now: datetime
    """The wall clock, aware, UTC."""
    monotonic: float
    """The same instant on the monotonic clock, in seconds."""


Steps: TypeAlias = Generator[Statement, Answer, T]
"""Statements in order, each sent the answer of the one before it; its return value is the script's."""

Transaction = Literal["none", "read", "write"]
"""none: each statement commits by itself (a script of one). read, write: one transaction around the
script, READ COMMITTED on PostgreSQL whatever its default; write takes the write lock first where the
database has only one (SQLite)."""


@dataclass(frozen=True, slots=True)
class Script(Generic[T]):
    """Statements that belong together."""

    name: str
    """What it is for; in errors, recordings and schedules."""
    steps: Callable[[Reading], Steps[T]]
    """Called once, with the clock's reading after the connection and the write lock are had. A
    statement's error is thrown in where it was yielded; the steps may catch it and go on."""
    transaction: Transaction = "write"
    is_urgent: bool = False
    """Whether it goes before whatever waits for a connection, or for its turn to write."""
