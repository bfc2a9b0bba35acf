"""What was sent to a database, in order: for tests that count statements and transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from inboxkit._sql.statement import Answer, Statement
from inboxkit.abc import Clock

__all__ = ["Kind", "Recorded", "RecordedTransaction", "Recording"]

Kind = Literal["statement", "begin", "commit", "rollback"]


@dataclass(slots=True, eq=False)
class Recorded:
    """One thing that was sent, and what became of it."""

    number: int
    """From 1, in the order of sending to this database."""
    kind: Kind
    name: str
    """The statement's name, or ``"begin"``, ``"commit"``, ``"rollback"``."""
    text: str
    parameters: tuple[Any, ...] = field(repr=False)
    script: str | None
    """The script that it belongs to."""
    connection: int
    """The number of its connection, from 1."""
    transaction: int
    """The number of its transaction; a statement outside of one has a number of its own."""
    at: datetime
    """When it was sent, by the database's clock."""
    answered_at: datetime | None = None
    """When it was answered; None: it was not, or not yet."""
    rowcount: int | None = None
    """What the answer said of rows written; None: it failed."""
    rows: int | None = None
    """How many rows the answer had; None: it failed."""
    error: BaseException | None = None
    """What was raised in place of an answer."""


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """Statements that were committed together, or would have been."""

    number: int
    name: str
    """The script's name, of several the first's (``"claim"``, of a transaction that holds a row over its
    handler); ``"begin"`` for a block of the service's own; else the lone statement's."""
    connection: int
    statements: tuple[Recorded, ...]
    """Without BEGIN and its end."""
    outcome: Literal["committed", "rolled back", "open", "failed"]
    """open: its end was not sent, or not answered. failed: its end, or the lone statement, was refused
    or its answer was lost."""


class Recording:
    """Everything that was sent to one database since it was made, or since `clear`.

    Statements inside a script are seen too, also where a thread runs it in one go.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: list[Recorded] = []
        self._sent = 0
        self._transactions = 0
        # A script's statements are recorded in its thread.
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Recorded]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def statements(self, name: str | None = None) -> list[Recorded]:
        """Statements of that name, or in a script of that name; None: all. BEGIN and its end are none."""
        return [
            recorded
            for recorded in self
            if recorded.kind == "statement" and name in {None, recorded.name, recorded.script}
        ]

    def transactions(self, name: str | None = None) -> list[RecordedTransaction]:
        """Transactions of that name, in order of their beginning; None: all.

        A script's is named after the script, one of the service's own ``"begin"``, and a lone
        statement is one as well. So ``len(recording.transactions("claim"))`` is the number of claims
        on every database, in however many statements each is made.
        """
        by_number: dict[int, list[Recorded]] = {}
        for recorded in self:
            by_number.setdefault(recorded.transaction, []).append(recorded)
        return [
            _transaction(number, called, parts)
            for number, parts in by_number.items()
            if (called := _name(parts)) == name or name is None
        ]

    def clear(self) -> None:
        """Forget what was recorded; numbers go on."""
        self._all.clear()

    # For the kit.

    @property
    def next_number(self) -> int:
        """The number of the next thing that is sent."""
        return self._sent + 1

    def new_transaction(self) -> int:
        """A number for a transaction."""
        with self._lock:
            self._transactions += 1
            return self._transactions

    def sent(
        self,
        kind: Kind,
        statement: Statement,
        *,
        script: str | None,
        connection: int,
        transaction: int,
    ) -> Recorded:
        """Note that something is sent now."""
        with self._lock:
            self._sent += 1
            recorded = Recorded(
                self._sent,
                kind,
                statement.name,
                statement.text,
                statement.parameters,
                script,
                connection,
                transaction,
                self._clock.now(),
            )
            self._all.append(recorded)
        return recorded

    def done(
        self, kind: Kind, statement: Statement, *, script: str, connection: int, transaction: int
    ) -> Recorded:
        """Note something that had its answer, without rows, as soon as it was sent."""
        now = self._clock.now()
        with self._lock:
            self._sent = number = self._sent + 1
            recorded = Recorded(
                number,
                kind,
                statement.name,
                statement.text,
                statement.parameters,
                script,
                connection,
                transaction,
                now,
                now,
                -1,
                0,
            )
            self._all.append(recorded)
        return recorded

    def answered(self, recorded: Recorded, answer: Answer | None = None) -> None:
        """Note an answer."""
        recorded.answered_at = self._clock.now()
        recorded.rowcount = -1 if answer is None else answer.rowcount
        recorded.rows = 0 if answer is None else len(answer.rows)

    def failed(self, recorded: Recorded, error: BaseException) -> None:
        """Note what was raised in place of an answer."""
        recorded.error = error


def _name(parts: list[Recorded]) -> str:
    for part in parts:
        if part.script is not None:
            return part.script
    return parts[0].name


def _transaction(number: int, name: str, parts: list[Recorded]) -> RecordedTransaction:
    first, last = parts[0], parts[-1]
    statements = tuple([part for part in parts if part.kind == "statement"])
    outcome: Literal["committed", "rolled back", "open", "failed"]
    if last.error is not None:
        outcome = "failed"
    elif last.answered_at is None:
        outcome = "open"
    elif last.kind == "rollback":
        outcome = "rolled back"
    elif last.kind == "commit" or first.kind == "statement":
        outcome = "committed"
    else:
        outcome = "open"
    return RecordedTransaction(number, name, first.connection, statements, outcome)
