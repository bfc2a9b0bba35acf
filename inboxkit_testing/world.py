"""Several instances of a service over one database, in one virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio

from inboxkit import Broker, Database, Inbox, InboxQueue, InboxSpec, Service
from inboxkit._core.async_only import AsyncOnly
from inboxkit.errors import ClosedError, DatabaseError, DeclarationError, OutcomeUnknownError

from ._draining import drain
from ._reading import read_rows
from .databases import ObservedDatabase
from .errors import CrashedError
from .history import History
from .instances import made_by
from .marks import Unsure, send
from .published import Publication
from .spinning import Spins
from .timeline import Timeline, recorded
from .troubles import Troubles

__all__ = ["World"]


class World(Troubles, AsyncOnly):
    """Several instances of a service over one real database, in one virtual time.

    Each has its own clock and its own view of the database, which can be cut, made to fail, and
    crashed, without a hook in the service. Its instances are processes of one machine, as far as a
    program can tell: they share nothing but the database (and what the factory shares by mistake).

        async with World(service, inbox_database) as world:
            await world.start("a")
            await world.start("b", clock_offset=timedelta(seconds=2))
            await world.publish(REPORTS, Report(1, pages=30_000))
            await world.advance(timedelta(seconds=10))
            await world.crash("a")
            await world.drain()
            world.history.check_all()

    Every step is a method, so a machine can drive it; on a clock with a `StatementGate` a run is
    repeated by the same steps and the gate's schedule. At the end of the block those that still run
    are stopped in order, and a `crash_at` that never struck is warned of.

    Args:
        factory: Makes the service over the database that it is given, anew for each start. The
            service is renamed after its instance.
        database: An open database in virtual time, of a file or server that several can use; the
            world's own statements go there. Of the fixture `inbox_database`, with `virtual_clock`.

    Raises:
        DeclarationError: The database is not one in virtual time, or has room for one alone; the
            factory does not use the database that it is given.
    """

    def __init__(self, factory: Callable[[Database], Service], database: Database) -> None:
        if not isinstance(database, ObservedDatabase):
            raise DeclarationError(
                f"a World needs a database in virtual time, not {database!r}: name virtual_clock "
                "beside inbox_database, or use open_test_database(url, clock=VirtualClock())"
            )
        if database.observed.max_connections == 1:
            raise DeclarationError(
                f"a World needs a database that several can open, and {database.url!r} lives in one "
                "connection: use a file (--inbox-db=sqlite or sqlite-inloop) or a server"
            )
        super().__init__(factory, database)
        self.timeline: Timeline = Timeline()
        """What has happened, with what the test did to it; of all instances."""
        self._outside = made_by(factory, database, "world")
        self._resources = AsyncExitStack()
        self._published: list[Publication] = []

    @property
    def broker(self) -> Broker:
        """A broker of the world's own, as that of another process which serves nothing."""
        return self._outside.broker

    # The world

    async def publish(
        self,
        queue: InboxQueue[Any, Any] | str,
        message: Any,
        *,
        by: str | None = None,
        **columns: Any,
    ) -> Any:
        """Publish, and return the row's id when all that it caused now has happened.

        Args:
            queue: The queue, or its name.
            message: What the handler gets.
            by: The instance that publishes, and so is woken; None: another process, so that the
                instances see the row when they look.
            columns: Values of the row's other columns.

        Returns:
            The id; None where the instance crashed meanwhile, so that nobody knows of the row.
        """
        id = await self._publish(queue, message, by, columns)
        await self.clock.settle()
        return id

    async def publish_together(
        self,
        *rows: tuple[InboxQueue[Any, Any] | str, Any]
        | tuple[InboxQueue[Any, Any] | str, Any, Mapping[str, Any]],
        by: str | None = None,
    ) -> list[Any]:
        """Publish one after the other, and only then wait until all that they caused has happened.

        Args:
            rows: Queue, message, and values of other columns if there are any.
            by: As for `publish`.

        Returns:
            As `publish`, one for each; fewer where the instance crashed meanwhile.
        """
        ids: list[Any] = []
        for queue, message, *columns in rows:
            if by is not None and by in self._instances and self._instances[by].is_crashed and ids:
                break
            ids.append(await self._publish(queue, message, by, *columns or ({},)))
        await self.clock.settle()
        return ids

    async def _publish(
        self,
        queue: InboxQueue[Any, Any] | str,
        message: Any,
        by: str | None,
        columns: Mapping[str, Any],
    ) -> Any:
        self._open()
        instance = self._running(by, "publish") if by is not None else None
        broker = self.broker if instance is None else instance.service.broker
        name = queue if isinstance(queue, str) else queue.name
        id = None
        try:
            id = await _in_named_task(partial(broker.publish, queue, message, **columns))
        except (CrashedError, DatabaseError) as error:
            has_died = instance is not None and instance.is_crashed
            if has_died or isinstance(error, OutcomeUnknownError):
                self._published.append(Publication(name, None, message, columns, by))
                text = f"a row of {name!r} may be there"
                send(Unsure(at=self.clock.now(), instance=by or "world", queue="", text=text))
            if not has_died:
                raise
        else:
            self._published.append(Publication(name, id, message, columns, by))
        return id

    @property
    def published(self) -> Sequence[Publication]:
        """What was published so far, in order, by `publish` and `publish_together`."""
        return tuple(self._published)

    async def advance(self, by: timedelta) -> None:
        """Let so much time pass; what falls due on the way happens in order."""
        await self.clock.advance(by)

    async def settle(self) -> None:
        """Return when everything that can happen now has happened; no time passes."""
        await self.clock.settle()

    async def drain(
        self, within: timedelta = timedelta(minutes=10), *, skip_waits: bool = False
    ) -> None:
        """Let time pass until no unfinished row is left in the queues that the service serves.

        Dead letters without a handler are not waited for. Nothing is healed or started for it.

        Args:
            within: For so long at most.
            skip_waits: Where nothing is due for more than a minute, stop the instances in order, let
                that time pass, and start them again with the right clock: a wait of days costs
                nothing, and does not count to `within`. Also give up a row that is handed out again
                and again (more than 12 times, and more often than its cap allows).

        Raises:
            InvariantViolation: Rows are left after so much time; names them.
            ClosedError: No instance runs, so nothing would be done.
        """
        await drain(self, self._outside, within, skip_waits=skip_waits)

    async def rows(self, table: type[Inbox] | InboxSpec) -> list[Any]:
        """All rows of a table, in the order of their ids."""
        return await read_rows(self.database, table)

    @property
    def history(self) -> History:
        """What has happened so far, to be checked."""
        return History.of(self.timeline, self._outside)

    # An async context manager

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise ClosedError("this World is open already")
        self.timeline = self._resources.enter_context(recorded(Spins(self.clock).take))
        if not self.database.is_open:
            await self._resources.enter_async_context(self.database)
        self._tasks = await self._resources.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        instances = list(self._instances.values())
        if error is None:
            for instance in instances:
                instance.ask_to_stop(cancel=False)
            for instance in instances:
                await instance.ended()
        else:
            assert self._tasks is not None
            self._tasks.cancel_scope.cancel()
        self._tasks = None
        await self._close(kind, error, traceback)
        if error is None:
            for instance in instances:
                self._tell_error(instance)
            self._warn_of_unhit()
        return None

    async def _close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._resources.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if error is None or group.exceptions != (error,):
                raise
            raise error from error.__cause__  # as the body raised it, not as the group wrapped it


async def _in_named_task(call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call in a task whose name, by which the gate sorts, does not depend on who drives the world."""
    found: list[Any] = []
    errors: list[BaseException] = []

    async def make() -> None:
        try:
            found.append(await call())
        except (CrashedError, Exception) as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make, name="world publishes")
    if errors:
        raise errors[0]
    return found[0]
