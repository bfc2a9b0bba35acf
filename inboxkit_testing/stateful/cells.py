"""Where examples run: one database and one event loop, kept over all examples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import sniffio
from typing_extensions import TypeVarTuple, Unpack

from inboxkit import Database, Service
from inboxkit.errors import DatabaseError, DeclarationError
from inboxkit_testing.backends import BackendName
from inboxkit_testing.clock import VirtualClock
from inboxkit_testing.databases import (
    INLOOP,
    STATEMENT_TIMEOUT,
    ObservedDatabase,
    open_test_database,
)
from inboxkit_testing.gate import StatementGate
from inboxkit_testing.instances import made_by
from inboxkit_testing.kept import KeptSessions
from inboxkit_testing.runner import VirtualRunner
from inboxkit_testing.world import World

from .emptying import empty, tables_with_rows
from .order import Order
from .traffic import Traffic, check_traffic

__all__ = ["Cell", "Facts"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Over(BaseException):
    """Ends a world without waiting for its instances."""


class Facts:
    """What the machine must know of a service.

    Args:
        service: One that is not running.
    """

    def __init__(self, service: Service) -> None:
        broker = service.broker
        queues = [subscriber.queue for subscriber in service.subscribers]
        forms = {queue.spec.form for queue in queues}
        leases = [queue.lease or broker.lease for queue in queues if queue.spec.form == "lease"]
        polls = [queue.poll_interval or broker.poll_interval for queue in queues]
        second = timedelta(seconds=1)
        lease = min(leases, default=None)
        poll = min(polls, default=second)
        self.most_instances: int | None = None
        """How many may run; None: any number."""
        if "advisory lock" in forms and broker.database.dialect == "sqlite":
            self.most_instances = 1  # its keys are kept by the process
        critical = {second, poll, 2 * second}
        self.skews: tuple[timedelta, ...] = (timedelta(0),)
        """How far a host's clock may be off: two that are wrong by the most, either way, stay within
        the tenth of a lease at which its holder gives it up, as the library demands."""
        if lease is not None:
            critical |= {lease / 2, lease * 0.95, lease + second, lease + poll, 2 * lease + poll}
            self.skews = (timedelta(0), lease * 0.03, -lease * 0.03)
        else:
            critical |= {5 * second, 31 * second}
        self.times: tuple[float, ...] = tuple(
            sorted({round(each.total_seconds(), 3) for each in critical})
        )
        """Seconds after which something may happen: looks at the table, renewals, ends of leases."""
        held = second if lease is None else lease
        self.pauses: tuple[float, ...] = tuple(
            each.total_seconds() for each in sorted({second, held + second, held + poll})
        )
        """Seconds after which what an instance had in work when it crashed may be had again."""
        self.losses: tuple[float, ...] = tuple(
            each.total_seconds() for each in sorted({held + 2 * poll, 2 * (held + poll)})
        )
        """Seconds after which a lease that was not renewed is another instance's."""
        self.has_leases: bool = lease is not None
        """Whether there is something to be renewed."""
        seconds = 0.0 if lease is None else lease.total_seconds()
        self.drifts: tuple[float, ...] = (0.0, seconds * 1e-5, -seconds * 1e-5)
        """Within ten minutes a hundredth part of a lease is not gained by much."""


class Cell:
    """One database and one loop; entered from sync code.

    Connections are kept as long as the loop is. Each example begins at the clock's start, with empty
    tables.

    Args:
        url: The database, as for `open_test_database`; it is emptied before each example.
        backend: The loop.
        factory: Makes the service.
        setup: Makes what the service needs, such as its tables; awaited once.
        populate: Writes the rows that each example begins with.
        keep: Tables that are not emptied.
    """

    def __init__(
        self,
        url: str,
        backend: BackendName,
        *,
        factory: Callable[[Database], Service],
        setup: Callable[[Database], Awaitable[object]],
        populate: Callable[[Database], Awaitable[object]] | None = None,
        traffic: Sequence[Traffic],
        keep: Collection[str] = (),
    ) -> None:
        try:
            sniffio.current_async_library()
        except sniffio.AsyncLibraryNotFoundError:
            pass
        else:
            raise DeclarationError(
                "crash and resume opens loops of its own: run it in a plain test, not in an async one"
            )
        self.url = url
        self.backend: BackendName = backend
        self.order: Order = Order()
        self.keep = keep
        self._factory = factory
        self._populate = populate
        self._clock = VirtualClock(gate=StatementGate(self.order.choose))
        self._runner: VirtualRunner | None = None
        self._database: ObservedDatabase | None = None
        try:
            self._open()
            self.call(self._prepare, setup)
            self.facts: Facts = self._look(traffic)
        except BaseException:
            self.close()
            raise

    @property
    def dialect(self) -> str:
        """Which SQL the database speaks."""
        assert self._database is not None
        return self._database.dialect

    def call(self, async_fn: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """Make a call in the loop."""
        assert self._runner is not None
        return self._runner.call(async_fn, *args)

    def begin(self, factory: Callable[[Database], Service]) -> World:
        """An open world over empty tables, at the clock's start."""
        if self._runner is None:
            self._open()
        try:
            return self.call(self._begin, factory)
        except BaseException:
            self.close()
            raise

    def end(self, world: World) -> None:
        """End a world as it stands."""
        try:
            self.call(self._end, world)
        except Exception:  # noqa: BLE001 - of what is over
            # What it left behind must not meet the next example; what went wrong was told before.
            self._forget()

    def close(self) -> None:
        """Close the loop and all connections."""
        runner, database = self._runner, self._database
        if runner is None:
            return
        try:
            if database is not None and self._clock.keeper.failure is None:
                with suppress(Exception):
                    runner.call(database.aclose)
                    if (kept := database.observed.kept) is not None:
                        runner.call(kept.aclose)
        finally:
            self._forget()

    def _forget(self) -> None:
        runner, self._runner, self._database = self._runner, None, None
        if runner is not None:
            with suppress(Exception):
                runner.stop()

    def _open(self) -> None:
        self._runner = VirtualRunner(backend=self.backend, clock=self._clock).start()
        self._database = database = open_test_database(self.url, clock=self._clock)
        # SQLite in a thread of its own would keep the thread, too.
        if database.dialect == "postgres" or self.url.startswith(INLOOP):
            database.observed.kept = KeptSessions(STATEMENT_TIMEOUT.total_seconds())
        self.call(database.open)

    async def _prepare(self, setup: Callable[[Database], Awaitable[object]]) -> None:
        assert self._database is not None
        # An old database of the user's own may hold rows; only what `setup` writes is to be seen.
        await empty(self._database, self.keep)
        await setup(self._database)
        lost = await tables_with_rows(self._database, self.keep)
        if lost:
            names = ", ".join(repr(name) for name in lost)
            raise DeclarationError(
                f"setup wrote rows into {names}, but tables are emptied before each example: write in "
                f"`populate` the rows that each example begins with, or keep the table: keep = {lost!r}"
            )

    def _look(self, traffic: Sequence[Traffic]) -> Facts:
        assert self._database is not None
        World(self._factory, self._database)  # says what is wrong with the database
        service = made_by(self._factory, self._database, "world")
        check_traffic(service, traffic)
        return Facts(service)

    async def _begin(self, factory: Callable[[Database], Service]) -> World:
        database = self._database
        assert database is not None
        self._clock.keeper.rewind()
        self.order.begin()
        await empty(database, self.keep)
        database.recording.clear()
        # A case that repeats the example asks before the first row that it publishes, which is a turn.
        database._described.clear()
        database.random.seed(0)
        if self._populate is not None:
            try:
                await self._populate(database)
            except DatabaseError as error:
                error.add_note(
                    "populate runs before the service starts, so tables that the service's `on_startup` "
                    "creates are not there unless `setup` creates them too"
                )
                raise
        world = World(factory, database)
        await world.__aenter__()
        return world

    async def _end(self, world: World) -> None:
        over = _Over()
        with suppress(_Over):
            await world.__aexit__(_Over, over, None)
        keeper = self._clock.keeper
        if keeper.is_busy():
            raise RuntimeError("something of the example is still going on")

    def __repr__(self) -> str:
        return f"<Cell {self.url.partition(':')[0]} {self.backend}>"
