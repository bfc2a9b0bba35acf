"""Several instances of a service over one database, in one virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from inboxkit import Broker, Database, Inbox, InboxQueue, InboxSpec, Service
from inboxkit.errors import ClosedError, DatabaseError, DeclarationError

from ._reading import read_rows
from ._unfinished import unfinished
from .clock import VirtualClock
from .crashpoints import When, arm_crash
from .databases import ObservedDatabase
from .errors import CrashedError, InvariantViolation
from .faults import Fault
from .history import History
from .instances import Instance, made_by
from .links import How
from .marks import Armed, Cut, Healed, Note, send
from .timeline import Timeline, recorded

__all__ = ["World"]

_ZERO = timedelta(0)
_LONGEST_STEP = 15.0


class World:
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
    are stopped in order.

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
        self.database: ObservedDatabase = database
        """The world's own view: nothing goes wrong with it."""
        self.clock: VirtualClock = database.observed.time
        """The true time."""
        self.timeline: Timeline = Timeline()
        """What has happened, with what the test did to it; of all instances."""
        self._factory = factory
        self._outside = made_by(factory, database, "world")
        self._instances: dict[str, Instance] = {}
        self._starts = 0
        self._resources = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    # Instances

    @property
    def instances(self) -> Mapping[str, Instance]:
        """By name, the last of each that was started: its `database`, `service`, `clock`, `state`."""
        return MappingProxyType(self._instances)

    @property
    def running(self) -> tuple[str, ...]:
        """Names of the instances that run, in order of their starts; those that are stopping too."""
        return tuple(name for name, instance in self._instances.items() if instance.is_up)

    @property
    def broker(self) -> Broker:
        """A broker of the world's own, as that of another process which serves nothing."""
        return self._outside.broker

    async def start(
        self, name: str, *, clock_offset: timedelta = _ZERO, drift: float = 0.0
    ) -> Instance:
        """Start an instance, and return when it claims.

        Args:
            name: Its name. One that was stopped or has crashed may be started again.
            clock_offset: How far its clock is ahead; negative: behind.
            drift: How many seconds its clock gains in each true one, above -1.

        Raises:
            ClosedError: One of that name runs; or the world is not open.
            BaseException: What kept the service from starting.
        """
        tasks = self._open()
        if not isinstance(name, str) or not name or name == "world":
            raise DeclarationError(
                f"an instance is called by a non-empty str other than 'world', not {name!r}"
            )
        before = self._instances.get(name)
        if before is not None and before.state not in ("stopped", "failed", "crashed"):
            raise ClosedError(
                f"instance {name!r} is {before.state} already: stop or crash it first, or start "
                "one of another name"
            )
        self._tell_error(before)
        is_right = not clock_offset and not drift
        clock = self.clock if is_right else self.clock.at(name, clock_offset, drift)
        self._starts += 1
        instance = Instance(
            name,
            self._starts,
            clock=clock,
            time=self.clock,
            url=self.database.url,
            pool_size=self.database.pool_size,
            factory=self._factory,
        )
        instance.when_crashed = self._bury
        self._instances.pop(name, None)  # in order of the starts
        self._instances[name] = instance
        try:
            await tasks.start(instance.run, name=name)
        except BaseException:
            instance.error_was_told = True
            raise
        return instance

    async def stop(self, name: str, *, cancel: bool = False) -> None:
        """Stop an instance in order, and return when it has ended; time passes as its handlers need it.

        Args:
            name: Whose.
            cancel: Cancel its handlers in place of waiting for them.

        Raises:
            LookupError, ClosedError: It is unknown, or does not run.
            BaseException: What had ended it before.
        """
        instance = self.stop_nowait(name, cancel=cancel)
        await instance.ended()
        self._tell_error(instance)

    def stop_nowait(self, name: str, *, cancel: bool = False) -> Instance:
        """As `stop`, without waiting: what happens while it drains can be chosen."""
        instance = self._running(name, "stop")
        self._note(name, "is told to stop" + (", and cancels its handlers" if cancel else ""))
        instance.ask_to_stop(cancel=cancel)
        return instance

    async def crash(self, name: str) -> None:
        """Kill an instance, and return when the database has noticed; no time passes.

        No statement of it is ever sent again, its connections drop, and what it had not committed is
        undone. Its tasks are cancelled: their `finally` and ``except BaseException`` run, and cannot
        reach the database. What they log is not in the timeline.

        Raises:
            LookupError, ClosedError: It is unknown, or does not run.
        """
        instance = self._running(name, "crash")
        instance.database.crash_nowait()
        await instance.buried()

    def crash_at(self, name: str, statement: int | str, when: When = "before") -> Fault:
        """Have an instance crash at a statement that it is still to send.

        Args:
            name: Whose.
            statement: The k-th statement or COMMIT of that instance from now, from 1 (BEGIN and
                ROLLBACK do not count); or the next of that name, or script of that name, such as
                ``"claim"`` or ``"settle"``.
            when: ``"before"`` it is sent; ``"after"`` it was done, whose answer is never seen; or
                ``"reply lost"``: it was done, the connection breaks, and the instance lives on. What
                was done inside a transaction is undone with it.

        Returns:
            The fault; its `hits` says whether it has struck.

        Raises:
            LookupError, ClosedError: It is unknown, or does not run.
            ValueError: No such statement or moment.
        """
        instance = self._running(name, "crash_at")
        fault = arm_crash(instance.database, statement, when)
        which = f"statement {statement}" if isinstance(statement, int) else repr(statement)
        text = f"loses the reply of {which}" if when == "reply lost" else f"crashes {when} {which}"
        send(Armed(at=self.clock.now(), instance=name, queue="", text=f"from now: {text}"))
        return fault

    def partition(self, name: str, how: How = "hang") -> None:
        """Cut one instance from the database.

        Args:
            name: Whose.
            how: ``"hang"``: what it sends waits, for `heal` (then it arrives, late) or for 30 s (then
                its connection is dropped and the outcome unknown). ``"fail"``: its connections drop,
                and everything is refused at once.

        Raises:
            LookupError, ClosedError: It is unknown, does not run, or is cut already.
        """
        instance = self._running(name, "partition")
        if how not in ("hang", "fail"):
            raise ValueError(f"partition({name!r}): how is 'hang' or 'fail', not {how!r}")
        if instance.is_cut:
            raise ClosedError(f"instance {name!r} is cut from the database already: heal it first")
        send(Cut(at=self.clock.now(), instance=name, queue="", text=f"cut off: statements {how}"))
        instance.database.observed.cut(how)

    def heal(self, name: str) -> None:
        """Let an instance reach the database again.

        Raises:
            LookupError, ClosedError: It is unknown, does not run, or is not cut.
        """
        instance = self._running(name, "heal")
        if not instance.is_cut:
            raise ClosedError(f"instance {name!r} is not cut from the database")
        send(Healed(at=self.clock.now(), instance=name, queue="", text="reaches the database"))
        instance.database.observed.link.heal()

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
        self._open()
        instance = self._running(by, "publish") if by is not None else None
        broker = self.broker if instance is None else instance.service.broker
        id = None
        try:
            id = await broker.publish(queue, message, **columns)
        except (CrashedError, DatabaseError):
            if instance is None or not instance.is_crashed:
                raise
        await self.clock.settle()
        return id

    async def advance(self, by: timedelta) -> None:
        """Let so much time pass; what falls due on the way happens in order."""
        await self.clock.advance(by)

    async def settle(self) -> None:
        """Return when everything that can happen now has happened; no time passes."""
        await self.clock.settle()

    async def drain(self, within: timedelta = timedelta(minutes=10)) -> None:
        """Let time pass until no unfinished row is left in the queues that the service serves.

        Dead letters without a handler are not waited for. Nothing is healed or started for it.

        Raises:
            InvariantViolation: Rows are left after so much time; names them.
            ClosedError: No instance runs, so nothing would be done.
        """
        end = self.clock.now() + within
        step = 1.0
        await self.settle()
        while left := await unfinished(self._outside, self.database):
            if not self.running:
                raise ClosedError(
                    "drain: no instance runs, and rows are left: start one, such as start('a')"
                )
            now = self.clock.now()
            if now >= end:
                names = ", ".join(f"row {id!r} of queue {queue!r}" for queue, id in left[:5])
                more = f" and {len(left) - 5} more" if len(left) > 5 else ""
                tail = "\n".join(self.timeline.lines()[-15:])
                raise InvariantViolation(
                    f"nothing_lost: {names}{more} unfinished after {within}; the last events:\n{tail}",
                    rule="nothing_lost",
                    queue=left[0][0],
                    id=left[0][1],
                )
            await self.advance(min(timedelta(seconds=step), end - now))
            step = min(step * 2, _LONGEST_STEP)

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
        self.timeline = self._resources.enter_context(recorded())
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

    def _bury(self, instance: Instance) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(instance.bury, name=f"{instance.name} buried")

    def _open(self) -> TaskGroup:
        if self._tasks is None:
            raise ClosedError(
                "this World is not open: `async with World(factory, database) as world`"
            )
        return self._tasks

    def _running(self, name: str, what: str) -> Instance:
        self._open()
        instance = self._instances.get(name)
        if instance is None:
            known = ", ".join(map(repr, self._instances)) or "none"
            raise LookupError(f"{what}: there is no instance {name!r}; started were: {known}")
        self._tell_error(instance)
        if not instance.is_up:
            raise ClosedError(f"{what}: instance {name!r} does not run, it is {instance.state}")
        return instance

    def _note(self, name: str, text: str) -> None:
        send(Note(at=self.clock.now(), instance=name, queue="", text=text))

    @staticmethod
    def _tell_error(instance: Instance | None) -> None:
        """An instance that ended by itself says why, once."""
        if instance is not None and instance.error is not None and not instance.error_was_told:
            instance.error_was_told = True
            raise instance.error
