"""Whether a session is the server's own, or a pooler's that gives its statements to any session.

A lock of a session is worth nothing behind a pooler in transaction mode: it is taken on one session
of the server and let go on another.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from inboxkit._sql.statement import Statement
from inboxkit.abc import DriverConnection
from inboxkit.errors import DatabaseError, DialectError

__all__ = ["Lending", "refuse_transaction_pooling"]

_PID: Final = Statement("pooler check", "SELECT pg_backend_pid()")
_TRIES: Final = 3
"""Other clients of the pooler may hide what a try shows."""
_LOST_STATEMENTS: Final = frozenset({"26000", "42P05"})
"""A prepared statement is not there, or is there already: it is another session's."""
_CURE: Final = (
    "the advisory lock form holds each row by a lock of its session; let the pooler pool sessions "
    "(pool_mode = session), or connect to the server itself, or describe a locked_until column, "
    "which asks for the lease form"
)


class Lending(Protocol):
    """Lends sessions; a `Database` does."""

    @property
    def pool_size(self) -> int:
        """Most sessions at once."""
        ...

    async def acquire(self) -> DriverConnection:
        """Take a session."""
        ...

    async def release(self, connection: DriverConnection, /) -> None:
        """Give it back."""
        ...


async def refuse_transaction_pooling(lending: Lending, *, cure: str = _CURE) -> None:
    """Look whether statements of one session always come to the same session of the server.

    Args:
        lending: Whose sessions.
        cure: What needs that, and what to do where it is not so.

    Raises:
        DialectError: They do not: a pooler in transaction or statement mode stands between.
    """
    first = await lending.acquire()
    try:
        told: int | None = getattr(first, "backend_pid", None)
        if told is not None and told == await _pid(first):
            return
        if lending.pool_size == 1:
            raise DialectError(
                "a pooler stands between this service and PostgreSQL, and with pool_size=1 there is no "
                f"telling whether it pools sessions; give Database(pool_size=…) at least 2: {cure}"
            )
        for _ in range(_TRIES):
            if not await _is_kept(lending, first):
                raise _refused(cure)
    except DatabaseError as error:
        if _sqlstate(error) in _LOST_STATEMENTS:
            raise _refused(cure) from error
        raise
    finally:
        await lending.release(first)


async def _is_kept(lending: Lending, first: DriverConnection) -> bool:
    """Whether the first session is what it was, once what a pooler last gave to it is occupied, in a
    transaction of a second session.

    A pooler of transactions hands out the session that came back last, which then is busy when the
    first one's next statement comes. A pooler of sessions keeps each one's apart.
    """
    before = await _pid(first)
    second = await lending.acquire()
    try:
        try:
            await second.begin()
        except DialectError:
            return False  # there are not even transactions
        is_kept = await _pid(second) != before and await _pid(first) == before
        await second.rollback()
        return bool(is_kept)
    finally:
        await lending.release(second)


async def _pid(session: DriverConnection) -> Any:
    return (await session.execute(_PID)).rows[0][0]


def _refused(cure: str) -> DialectError:
    return DialectError(
        "a pooler stands between this service and PostgreSQL and gives the statements of one session "
        f"to several sessions of the server (pool_mode = transaction or statement): {cure}"
    )


def _sqlstate(error: BaseException) -> str | None:
    """The server's code behind an error."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(found := getattr(at, "sqlstate", None), str):
            return found
        at = at.__cause__
    return None
