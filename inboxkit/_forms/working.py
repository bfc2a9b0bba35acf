"""Transactions of transactional handlers: the settlement is written and committed in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import anyio

from inboxkit._core.haste import hasty
from inboxkit._core.settlement import Settlement
from inboxkit._sql.statement import Script, Statement
from inboxkit.abc import DriverConnection, Fence, Settled
from inboxkit.errors import DatabaseBusyError, DatabaseError, OutcomeUnknownError

from .runner import Lender
from .settling import Ending, Settling, of_settlements

__all__ = ["CONSTRAINTS", "SAVE", "KeyWork", "LeaseWork", "SavepointWork", "session_ended"]

SAVE: Final = Statement("begin", "SAVEPOINT inboxkit_handler", returns_rows=False)
CONSTRAINTS: Final = (
    Statement("settle constraints", "SET CONSTRAINTS ALL IMMEDIATE", returns_rows=False),
)
"""A deferred constraint would fail at the COMMIT, which also ends what holds the row."""
_UNDO: Final = Statement("rollback", "ROLLBACK TO SAVEPOINT inboxkit_handler", returns_rows=False)
_FIND: Final = Statement(
    "settle savepoint", "RELEASE SAVEPOINT inboxkit_handler", returns_rows=False
)
_UNDO_BOUND: Final = 5.0
"""Seconds for going back to the savepoint although the task is cancelled; then the session is dropped."""

Moved = Callable[[Fence], Awaitable[Fence | None]]


def session_ended(fence: Fence) -> DatabaseError:
    """Nothing can be begun where the row is held no more."""
    return DatabaseError(
        f"begin: the session that held row {fence.id!r} has ended; nothing was begun",
        statement="begin",
    )


def _check_open(connection: DriverConnection) -> None:
    """What the handler ended by a statement of its own cannot be committed with the settlement."""
    if not (connection.is_closed or connection.in_transaction):
        raise _has_ended()


def _has_ended() -> DatabaseError:
    return DatabaseError(
        "settle: a statement of the handler has ended its transaction (a procedure that commits, or on "
        "MariaDB and MySQL a statement that changes a table's definition), so that it cannot be "
        "committed together with the settlement; run such statements outside of delivery.tx",
        statement="settle",
    )


class LeaseWork:
    """A transaction on a connection of its own; the row is held by its token."""

    def __init__(self, lender: Lender, connection: DriverConnection, settling: Settling) -> None:
        self._lender = lender
        self._settling = settling
        self.connection = connection

    async def ack(self, fence: Fence, settlement: Settlement, *, moved: Moved) -> Settled:
        """Write by any token of the fence, and commit."""
        try:
            _check_open(self.connection)
            settled, ending = await self._write(fence, settlement)
            while settled is None and (other := await moved(ending.fence)) is not None:
                settled, ending = await self._write(other, settlement)
            if settled is not None:
                await self.connection.commit()
                return settled
        except OutcomeUnknownError as error:
            return Settled("unknown", error=error)
        finally:
            await self.rollback()
        settled = await self._settling.explain(ending)
        if settled.error is not None:
            raise settled.error
        return settled

    async def rollback(self) -> None:
        """Undo it, and give the connection back."""
        await self._lender.release(self.connection)

    async def _write(self, fence: Fence, settlement: Settlement) -> tuple[Settled | None, Ending]:
        (ending,) = of_settlements([(fence, settlement)])
        return await self.connection.run(self._settling.script(ending)), ending


class SavepointWork:
    """The rest of the transaction that holds the row.

    Args:
        connection: Where the savepoint has been set.
        script: Writes a settlement.
        commit: Commits it, due again at that instant, and gives the session back.
        first: Sent before it.
        may_be_another: Whether the handler may have begun another transaction than that of the
            savepoint, which is then looked for before the commit.
    """

    def __init__(
        self,
        connection: DriverConnection,
        script: Callable[[Fence, Settlement], Script[datetime | None]],
        commit: Callable[[Fence, datetime | None], Awaitable[Settled]],
        *,
        first: tuple[Statement, ...] = (),
        may_be_another: bool = False,
    ) -> None:
        self._first = first
        self._may_be_another = may_be_another
        self._script = script
        self._commit = commit
        self.connection = connection

    async def ack(
        self,
        fence: Fence,
        settlement: Settlement,
        *,
        moved: Moved,  # noqa: ARG002 - nothing but the session holds the row
    ) -> Settled:
        """Write and commit; where the write fails, back to the savepoint, so that the row is kept."""
        try:
            _check_open(self.connection)
            for statement in self._first:
                await self.connection.execute(statement)
            due = await self.connection.run(self._script(fence, settlement))
            if self._may_be_another:
                # Last: it takes the savepoint away, to which a settlement that fails must go back.
                await self._check_same()
        except BaseException:
            await self.rollback()
            raise
        return await self._commit(fence, due)

    async def _check_same(self) -> None:
        try:
            await self.connection.execute(_FIND)
        except DatabaseBusyError:
            raise
        except DatabaseError as error:
            raise _has_ended() from error

    async def rollback(self) -> None:
        """Back to the savepoint; the session is dropped where there is none any more."""
        connection, is_done = self.connection, False
        if connection.is_closed:
            return
        try:
            if connection.in_transaction:
                with hasty(anyio.move_on_after(_UNDO_BOUND, shield=True)):
                    await connection.execute(_UNDO)
                    is_done = True
        except DatabaseError:
            is_done = False
        finally:
            if not is_done:
                connection.terminate()


class KeyWork:
    """A transaction beside a key that this service has locked.

    Args:
        connection: Where it has begun.
        script: Writes an ending.
        finish: Lets the key go.
        leave: Gives the connection back, where it is not the key's.
    """

    def __init__(
        self,
        connection: DriverConnection,
        script: Callable[[Ending], Script[Settled]],
        *,
        finish: Callable[[], Awaitable[None]],
        leave: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._script = script
        self._finish = finish
        self._leave = leave
        self.connection = connection

    async def ack(
        self,
        fence: Fence,
        settlement: Settlement,
        *,
        moved: Moved,  # noqa: ARG002 - nothing but the key holds the row
    ) -> Settled:
        """Write and commit, then let the key go; it is kept where nothing was written."""
        (ending,) = of_settlements([(fence, settlement)])
        script = self._script(ending)
        is_kept = False
        try:
            _check_open(self.connection)
            settled = await self.connection.run(Script("settle", script.steps, "none"))
            if settled.result == "written":
                await self.connection.commit()
            return settled
        except OutcomeUnknownError as error:
            return Settled("unknown", error=error)
        except BaseException:
            is_kept = True
            raise
        finally:
            try:
                await self.rollback()
            finally:
                if not is_kept:
                    await self._finish()

    async def rollback(self) -> None:
        """Undo it; the key is held as before."""
        if self._leave is not None:
            await self._leave()
        elif self.connection.in_transaction:
            await self.connection.rollback()
