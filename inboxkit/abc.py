"""Ports: what the layers ask of each other, and what a third party implements.

`Clock` is where time comes from. `Driver` and `DriverConnection` talk to a database. `ClaimForm` is
what the runtime knows of a table: six verbs, no SQL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import ClaimFormName
from inboxkit._core.spec import PayloadCodec as Codec
from inboxkit._sql.statement import Answer, Reading, Script, Statement

__all__ = [
    "Answer",
    "Claim",
    "ClaimForm",
    "ClaimFormName",
    "Claimed",
    "Clock",
    "Codec",
    "Destination",
    "DialectName",
    "Driver",
    "DriverConnection",
    "Fence",
    "GroupsRest",
    "Listening",
    "Movable",
    "Notification",
    "Reading",
    "Renewal",
    "RowsRest",
    "Script",
    "ServerClock",
    "Settled",
    "Settlement",
    "Statement",
    "Verb",
    "Work",
]

T = TypeVar("T")

DialectName = Literal["postgres", "sqlite", "mysql"]
"""MariaDB and MySQL are one."""


@runtime_checkable
class Clock(Protocol):
    """Where all time comes from; owned by the `Database`.

    `now` and `monotonic` may be called from any thread. One whose time is not the world's has an
    attribute `is_virtual` that is True: no server's clock is then compared with it.
    """

    def now(self) -> datetime:
        """The wall clock: aware, UTC, microseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds of this clock; zero and negative are a checkpoint."""
        ...

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until `now()` is `instant` (aware) or later."""
        ...

    def external(self, label: str) -> AbstractContextManager[None]:
        """Open around I/O that goes out of this process, until its answer has been read.

        A virtual clock stands still meanwhile; the system's clock takes no notice.
        """
        ...


class ServerClock:
    """Base of a `Clock` that is a database server's: a script's reading is what the server answers."""

    dialect: DialectName | None = None
    """How the server is asked; set by the `Database` that the clock belongs to."""

    def told(self, now: datetime, monotonic: float) -> Reading:
        """Take note of the server's answer, and make the script's reading of it.

        Args:
            now: What the server takes for the time; aware.
            monotonic: This clock's, from before it was asked.
        """
        raise NotImplementedError


class DriverConnection(Protocol):
    """One session of a database. Used by one task at a time.

    Every call opens `clock.external` around its I/O, and shields it: a cancelled statement is
    finished, or cancelled on the server, before the cancellation goes on; where neither is certain
    within a bound the connection is closed, never reused. Errors are inboxkit's, with the driver's as
    the cause.
    """

    @property
    def is_closed(self) -> bool:
        """True once the session has ended, from either side, as far as known without asking."""
        ...

    @property
    def in_transaction(self) -> bool:
        """True between BEGIN and its end."""
        ...

    async def execute(self, statement: Statement) -> Answer:
        """Run one statement.

        Raises:
            DatabaseError, DatabaseBusyError, ConstraintError: Nothing happened.
            OutcomeUnknownError: It may have happened; the connection is closed.
        """
        ...

    async def run(self, script: Script[T]) -> T:
        """Run a script: in its transaction, committed before this returns, rolled back when it raises.

        The clock is read once, after the transaction (and SQLite's write lock) was begun.

        Raises:
            OutcomeUnknownError: The connection broke at or after the first statement that may have
                been committed (COMMIT, or a lone statement).
        """
        ...

    async def begin(self, *, hold: bool = False) -> None:
        """Begin a transaction (SQLite: with its write lock).

        Args:
            hold: The runtime keeps it open over a handler, so that time may pass in it; READ
                COMMITTED whatever the server's default. Else it is a block of the service's own
                statements.
        """
        ...

    async def commit(self) -> None:
        """End it for good. Shielded and bounded; an aborted transaction raises DatabaseError."""
        ...

    async def rollback(self) -> None:
        """Undo it. Shielded and bounded; the connection is closed where that fails."""
        ...

    async def close(self) -> None:
        """End the session politely, within a bound."""
        ...

    def terminate(self) -> None:
        """Drop the session at once, without waiting: the server sees a dead client."""
        ...


@runtime_checkable
class Movable(Protocol):
    """What a `DriverConnection` of a server knows besides."""

    @property
    def is_misplaced(self) -> bool:
        """Whether its server has refused to write, since it is read-only, as a former primary is."""
        ...


@dataclass(frozen=True, slots=True)
class Notification:
    """What a server told those who listen on a channel."""

    channel: str
    payload: str


@runtime_checkable
class Listening(Protocol):
    """What a `DriverConnection` of PostgreSQL can do besides; not while a statement runs on it."""

    async def listen(self, channel: str) -> None:
        """Hear what is told on a channel from now on.

        Raises:
            DatabaseError: Nothing is heard.
        """
        ...

    async def notified(self) -> None:
        """Wait until `notifications` has something. Not in the clock's bracket: time may pass.

        Raises:
            DatabaseError: The session has ended.
        """
        ...

    def notifications(self) -> list[Notification]:
        """Take what has come since the last call."""
        ...


class Driver(Protocol):
    """Opens connections to one database."""

    @property
    def name(self) -> str:
        """The driver's name, such as ``"asyncpg"``."""
        ...

    @property
    def dialect(self) -> DialectName:
        """Which SQL it speaks."""
        ...

    @property
    def max_connections(self) -> int | None:
        """Most connections that make sense (1 for SQLite's ``:memory:``); None: no limit."""
        ...

    async def connect(self) -> DriverConnection:
        """Open one session.

        Raises:
            ConnectError: The server or file could not be reached or opened.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the driver itself keeps; connections are closed before."""
        ...


@dataclass(frozen=True, slots=True)
class Fence:
    """What a row must still hold for a delivery to write it."""

    id: Any
    """The row's id."""
    tokens: tuple[datetime, ...] = ()
    """Every expiry that may stand in the row: the last confirmed one first, then those of later
    renewals whose outcome is unknown."""
    attempt: int | None = None
    """What the claim stored as the row's attempt; None: no such column, or it was undecodable."""
    hold: int | None = None
    """The form's number of the session that holds the row, which is also that of the other rows of its
    claim where the form `holds_together`; None: no session does (lease form)."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row as a claim handed it out."""

    fence: Fence
    reading: Reading
    """The clock's reading that its expiry was made from."""
    attempt: int | None
    """The delivery's number, before the count: 1 at first. None: no attempt column. A NULL or
    undecodable attempt reads 1."""
    counted: bool
    """Whether this claim counted (so that an orderly stop may give the attempt back)."""
    spent: bool
    """Past its cap: it goes to the dead letter without its handler."""
    group: str | None = None
    key: Any = None
    """The partition key's value."""
    headers: Mapping[str, str] = field(default_factory=dict)
    payload: bytes | None = None
    """None in row mode."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Every described column by its column name, decoded, as it stood before the claim wrote; a
    value that could not be decoded is the DecodeError that says so."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim brought."""

    rows: tuple[Claimed, ...]
    """In claim order."""
    reading: Reading
    undecodable: int = 0
    """Rows taken whose id cannot be read: logged, set aside until their lease ends."""
    more: bool = False
    """There may be due rows that it did not see or get: the next claim comes at once."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """What one round of renewals did; every fence that was sent is in exactly one of the groups.

    Where sessions hold the rows nothing is sent, and only `lost` is filled.
    """

    reading: Reading | None
    """The clock's reading that the new expiries were made from; None: nothing was sent."""
    renewed: Mapping[Any, datetime] = field(default_factory=dict)
    """Id to its new token."""
    skipped: frozenset[Any] = frozenset()
    """Locked by somebody just now: not lost, try again soon."""
    lost: frozenset[Any] = frozenset()
    """Another token stands in the row, or the row is gone; or the session that held it has ended."""
    unknown: Mapping[Any, datetime] = field(default_factory=dict)
    """Sent, answer lost: id to the token that may now stand in the row."""
    failed: frozenset[Any] = frozenset()
    """Nothing happened."""
    error: BaseException | None = None
    """The error behind `unknown` and `failed`, for the log."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one settlement."""

    result: Literal["written", "lost", "gone", "failed", "unknown"]
    """written: done, once. lost: another token stands in the row, or its session had ended. gone: the
    row is not there (or is finished). failed: nothing happened, may be repeated where a lease holds the
    row. unknown: sent, answer lost."""
    due: datetime | None = None
    """Where written: the instant at which the row is due again, if it is; None of one that is: now. Where
    failed: until when the form passes the row over; None: not at all."""
    error: BaseException | None = None
    """None of a failed one: that of another row of its session failed."""


class Work(Protocol):
    """The transaction of one transactional handler; ended once, by `ack` or `rollback`."""

    @property
    def connection(self) -> DriverConnection:
        """Where it is open; READ COMMITTED whatever the server's default."""
        ...

    async def ack(
        self,
        fence: Fence,
        settlement: Settlement,
        *,
        moved: Callable[[Fence], Awaitable[Fence | None]],
    ) -> Settled:
        """Write the settlement where the row holds any of the fence's tokens, and commit it together
        with all that the handler wrote.

        Args:
            fence: As now known. A renewal may be in flight, and is not waited for.
            settlement: What ends the delivery.
            moved: Asked where no row held the fence: the fence as it is once a renewal in flight has
                been answered, or None where that is no other.

        Returns:
            What became of it, for good. Only of "written" anything lasts; of "unknown" all or nothing.
            Where a session held the row, it has been given back.

        Raises:
            DatabaseError: It was rolled back. The row is held as before, and is to be settled or
                released.
        """
        ...

    async def rollback(self) -> None:
        """Undo what the handler wrote. The row is held as before; where that cannot be, its session
        has ended."""
        ...


class ClaimForm(Protocol):
    """What holds the rows of one queue in work: the runtime's whole view of a table.

    Either a lease in the row holds it (`lease` is a time), or a session of the database does (`lease`
    is None). A form of the second kind keeps the session of each claim, by the number in `Fence.hold`,
    from the claim that took its row until `settle` or `release` was called for it, whatever came of
    the call; it gives the session back then, and before an empty claim returns. `close` gives back
    what is left. Everything about a row is written on its own session, at most once.
    """

    @property
    def lease(self) -> timedelta | None:
        """How long a claim holds unrenewed; None: the hold is a connection."""
        ...

    @property
    def holds_together(self) -> bool:
        """Whether one session holds all rows of a claim; else each has one of its own, or a lease.

        Rows of one session end together: all their settlements come in one call of `settle`, are
        written one after the other and committed by the last. Where one fails none is written, and all
        are answered so. Rows of the session that the call does not name are given back as they are.
        """
        return False

    async def claim(self, *, limit: int) -> Claim:
        """Take up to `limit` due rows, in claim order, in one statement or transaction.

        Where sessions hold rows, several claims may be in flight. Where each row has a session of its
        own, no claim waits for a second one: it takes fewer rows.

        Raises:
            DatabaseError: Nothing was claimed, or (OutcomeUnknownError) rows may have been and come
                back at their expiry.

        Cancellation:
            Not shielded here; the runtime shields it within a bound.
        """
        ...

    async def renew(self, holds: Sequence[tuple[Fence, Reading]], *, timeout: float) -> Renewal:
        """Prolong leases in one statement that never waits for a row.

        Where sessions hold rows: tell which have ended, without asking them. Called about each second.

        Never raises for the database's sake: every fence that was given is in one of the answer's groups.

        Args:
            holds: Each with the reading that its confirmed token was made from.
            timeout: Seconds after which the round gives up; what was sent by then is `unknown`.
        """
        ...

    async def settle(self, settlements: Sequence[tuple[Fence, Settlement]]) -> list[Settled]:
        """Write settlements together, in one transaction; on a failure each by itself, in one more.

        Where sessions hold rows: each session on its own, and a failure gives its rows back. HOLD, which
        nothing but a lease can write, is then GIVE_BACK.

        Never raises for the database's sake: every settlement gets its `Settled`, in order.
        """
        ...

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Give rows back unsettled, once; the flag says whether the claim's count is taken back.

        Of rows that one session holds either all are given or none. Also called, with True, for rows
        whose session has ended, so that it is let go of.
        """
        ...

    async def begin(self, fence: Fence) -> Work:
        """Begin the transaction of a transactional handler: on the session that holds the row, or else
        on a connection of its own.

        On SQLite it takes the write lock, which every claim and renewal then waits for.

        Raises:
            DatabaseError: Nothing was begun.
        """
        ...

    async def close(self) -> None:
        """Let go of what the form itself keeps: rows under a lease stay so, sessions are given back.

        Within a bound of the caller's; called once nothing else of the form runs.
        """
        ...


@runtime_checkable
class RowsRest(Protocol):
    """A `ClaimForm` that can leave one row alone for a time, and claim others meanwhile."""

    def rest_row(self, id: Any, until: float) -> None:
        """Do not claim a row before this second of the monotonic clock."""
        ...


@runtime_checkable
class GroupsRest(Protocol):
    """A `ClaimForm` of every group of a table, of which it can leave one alone for a time."""

    def rest(self, group: str, until: float) -> None:
        """Claim nothing of a group before this second of the monotonic clock."""
        ...
