"""Chosen failures at the driver port: a statement refused, late, unanswered, or done with its reply lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from inboxkit._sql.statement import Statement
from inboxkit.abc import DialectName
from inboxkit.errors import DatabaseBusyError, DatabaseError, OutcomeUnknownError

from ._server_errors import ServerError, check_error, statements_that_raise

__all__ = ["Fault", "Faults", "Matching", "Operation", "broken_in_transaction", "given_up"]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that is about to be sent."""

    number: int
    """The number that its recording has; of a whole script: that of its first statement."""
    kind: Literal["statement", "begin", "commit", "rollback", "script"]
    """script: a script that runs in one go, as on SQLite."""
    name: str
    """The statement's name, or ``"begin"``, ``"commit"``, ``"rollback"``; the script's."""
    text: str
    script: str | None
    """The script that it belongs to, or is."""
    commits: bool
    """Whether it makes its work last: a COMMIT, a statement by itself, a script in one go."""
    opens_script: bool = False
    """Whether nothing of its script was sent before: its BEGIN, its first statement, or all of it."""
    ends_script: bool = False
    """Whether its script lasts with it: its COMMIT, a statement that commits by itself, or all of it."""


Matching: TypeAlias = str | Callable[[Operation], bool]
"""Which operations a fault meets: statements or scripts of that name, in capitals or not (a script once
in each run, where it begins or where it ends, as the fault needs), or those for which a function answers
True. The function may be called in a connection's thread."""

Action: TypeAlias = (
    Literal[
        "refuse", "lose reply", "delay", "hang", "close connection", "crash before", "crash after"
    ]
    | ServerError
)


_SERVER_ERRORS: Final = get_args(ServerError)
UNTOLD: Final = ("execute", "fetch")
"""Names of statements that the service wrote itself: they say nothing of what is sent."""
_LONGEST_TEXT = 60


@dataclass(slots=True, eq=False, repr=False)
class Fault:
    """One rule; `hits` says how often it has struck."""

    action: Action
    matching: Matching
    left: int
    """How many times more it strikes."""
    seconds: float = 0.0
    error: Callable[[Operation], BaseException] | None = None
    nth: int = 1
    """The first that it strikes, of those that match."""
    told: str = ""
    """How it was asked for; empty: as a method of `Faults`."""
    has_struck: int = field(default=0, init=False)
    was_asked: bool = field(default=False, init=False)
    """Whether somebody has looked at `hits`."""
    struck: Operation | None = field(default=None, init=False)
    """What it struck last."""
    _seen: int = field(default=0, init=False)

    @property
    def hits(self) -> int:
        """How often it has struck."""
        self.was_asked = True
        return self.has_struck

    def take(self, operation: Operation) -> bool:
        """Whether it strikes this operation; counts it."""
        if self.left <= 0 or not self._matches(operation):
            return False
        self._seen += 1
        if self._seen < self.nth:
            return False
        self.left -= 1
        self.has_struck += 1
        self.struck = operation
        return True

    def __str__(self) -> str:
        """As it was asked for."""
        if self.told:
            return self.told
        what = self.matching
        name = repr(what) if isinstance(what, str) else getattr(what, "__qualname__", "a function")
        number = f" number {self.nth}" if self.nth > 1 else ""
        return f"{self.action} {name}{number}"

    def __repr__(self) -> str:
        hits = "hit" if self.has_struck else "not hit"
        if self.has_struck > 1:
            hits += f" {self.has_struck} times"
        return f"<Fault {self}: {hits}>"

    def _matches(self, operation: Operation) -> bool:
        if callable(self.matching):
            return self.matching(operation)
        name = self.matching.casefold()
        if (operation.script or "").casefold() != name:
            return operation.name.casefold() == name
        if self.action in _SERVER_ERRORS:
            return operation.kind == "statement"
        needs_end = self.action in {"lose reply", "crash after"}
        return operation.ends_script if needs_end else operation.opens_script


class Faults:
    """What goes wrong with one database; rules strike in the order in which they were given.

    Args:
        dialect: Whose errors it can answer with.
    """

    def __init__(self, dialect: DialectName) -> None:
        self._dialect: DialectName = dialect
        self._faults: list[Fault] = []
        self.has_any: bool = False
        """Whether a rule was given, and not cleared; for the kit."""

    def refuse(
        self,
        matching: Matching,
        *,
        times: int = 1,
        nth: int = 1,
        error: Callable[[Operation], BaseException] | None = None,
    ) -> Fault:
        """Do not send it; raise `DatabaseBusyError`, or what `error` makes.

        Args:
            matching: Which operations.
            times: How many of them.
            nth: The first that is refused, of those that match.
            error: Makes the error.
        """
        return self._add(Fault("refuse", matching, times, nth=nth, error=error))

    def lose_reply(self, matching: Matching, *, times: int = 1) -> Fault:
        """Really do it, then break the connection in place of an answer.

        `OutcomeUnknownError` where it has lasted; inside a transaction, which goes with the
        connection, `DatabaseBusyError`.
        """
        return self._add(Fault("lose reply", matching, times))

    def delay(self, matching: Matching, seconds: float, *, times: int = 1, nth: int = 1) -> Fault:
        """Hold it back for so many virtual seconds before it is sent; it is not in flight meanwhile.

        Not a statement inside a script that runs in one go: there name the script. The n-th such
        operation is the first that is held back.
        """
        return self._add(Fault("delay", matching, times, seconds=seconds, nth=nth))

    def hang(self, matching: Matching, seconds: float = 30.0, *, times: int = 1) -> Fault:
        """Never send it: after so many virtual seconds its connection is given up.

        `OutcomeUnknownError` where it would have lasted, since who waits cannot know; inside a
        transaction, which goes with the connection, `DatabaseBusyError`. Else as `delay`.
        """
        return self._add(Fault("hang", matching, times, seconds=seconds))

    def close_connection(self, matching: Matching, *, times: int = 1) -> Fault:
        """End its session before it is sent: the server does, and the driver finds out by sending.

        On SQLite, which has no server, the connection is closed. The error is the driver's own.
        """
        return self._add(Fault("close connection", matching, times))

    def busy(self, matching: Matching, *, times: int = 1) -> Fault:
        """Have the database answer that a lock was not to be had: `DatabaseBusyError`.

        A server really raises it, in place of the statement; of a script named, in place of its first
        one. SQLite's transaction is refused, as by `refuse`.
        """
        if self._dialect == "sqlite":
            return self.refuse(matching, times=times)
        return self._add(Fault("busy", matching, times))

    def deadlock(self, matching: Matching, *, times: int = 1) -> Fault:
        """Have the server choose its transaction as a deadlock's victim; as `busy`.

        Raises:
            ValueError: SQLite has none.
        """
        check_error("deadlock", self._dialect)
        return self._add(Fault("deadlock", matching, times))

    def serialization_failure(self, matching: Matching, *, times: int = 1) -> Fault:
        """Have PostgreSQL refuse it for a conflict with a transaction beside; as `busy`.

        Raises:
            ValueError: The other databases have none.
        """
        check_error("serialization failure", self._dialect)
        return self._add(Fault("serialization failure", matching, times))

    def crash(
        self, matching: Matching, *, when: Literal["before", "after"] = "before", nth: int = 1
    ) -> Fault:
        """Crash this database's process at the n-th such operation: before it is sent, or once it is done.

        What was done has lasted if it commits; its answer is never seen.
        """
        action: Action = "crash before" if when == "before" else "crash after"
        return self._add(Fault(action, matching, 1, nth=nth))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()
        self.has_any = False

    # For the kit.

    def delay_of(self, operation: Operation) -> float:
        """Seconds to hold it back."""
        return sum(fault.seconds for fault in self._striking("delay", operation))

    def hang_of(self, operation: Operation) -> float | None:
        """Seconds after which it is given up; None: it is sent."""
        for fault in self._striking("hang", operation):
            return fault.seconds
        return None

    def closes_connection_of(self, operation: Operation) -> bool:
        """Whether its session ends before it is sent."""
        return bool(self._striking("close connection", operation))

    def errors_of(self, operation: Operation) -> list[Statement]:
        """What to send in its place, to have the server raise an error; empty: it is sent."""
        for error in _SERVER_ERRORS:
            if self._striking(error, operation):
                return statements_that_raise(error, self._dialect, operation.name)
        return []

    def refusal_of(self, operation: Operation) -> BaseException | None:
        """What to raise in place of sending it."""
        for fault in self._striking("refuse", operation):
            if fault.error is not None:
                return fault.error(operation)
            return DatabaseBusyError(
                f"{operation.name}: refused by the test; nothing happened", statement=operation.name
            )
        return None

    def loses_reply_of(self, operation: Operation) -> bool:
        """Whether to break the connection once it is done."""
        return bool(self._striking("lose reply", operation))

    def place_of_crash(self) -> str:
        """Before or after which operation the process has ended; empty: at none."""
        for fault in self._faults:
            if fault.action in ("crash before", "crash after") and fault.struck is not None:
                return f" {fault.action.removeprefix('crash ')} {_shown(fault.struck)}"
        return ""

    def crashes_before(self, operation: Operation) -> bool:
        """Whether the process ends here."""
        return bool(self._striking("crash before", operation))

    def crashes_after(self, operation: Operation) -> bool:
        """Whether the process ends once it is done."""
        return bool(self._striking("crash after", operation))

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        self.has_any = True
        return fault

    def _striking(self, action: Action, operation: Operation) -> list[Fault]:
        """The first rule of that action that strikes."""
        for fault in self._faults:
            if fault.action == action and fault.take(operation):
                return [fault]
        return []


def _shown(operation: Operation) -> str:
    name = operation.script or operation.name
    if operation.kind in ("begin", "commit"):
        return (
            f"{operation.kind.upper()} of {name!r}" if operation.script else operation.kind.upper()
        )
    if name not in UNTOLD:
        return repr(name)
    text = " ".join(operation.text.split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def given_up(operation: Operation, seconds: float) -> DatabaseError:
    """What was not answered for so long that its connection was dropped."""
    if not operation.commits:
        return broken_in_transaction(operation)
    return OutcomeUnknownError(
        f"{operation.name}: no answer within {seconds:g} s, since the test has cut the connection; it "
        "may have happened",
        statement=operation.name,
    )


def broken_in_transaction(operation: Operation) -> DatabaseError:
    """A reply that was lost where the transaction goes with its connection."""
    return DatabaseBusyError(
        f"{operation.name}: the connection was broken by the test inside a transaction; nothing happened",
        statement=operation.name,
    )
