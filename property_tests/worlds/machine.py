"""Makes a schedule happen to the library, in virtual time, and keeps the evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from inboxkit import Delivery, Outcome, Service, insert_rows
from inboxkit.errors import DatabaseError
from inboxkit_testing import (
    CrashedError,
    ObservedDatabase,
    StatementGate,
    Timeline,
    VirtualClock,
    open_test_database,
    recorded,
    run,
)
from inboxkit_testing.backends import BackendName
from inboxkit_testing.timeline import Note

from .answers import Troubles, answered
from .history import Call, History, Published
from .schedule import (
    Act,
    Advance,
    Crash,
    CrashAt,
    Fault,
    Job,
    Publish,
    Restart,
    Schedule,
    Step,
    Stop,
)
from .tables import Task, columns_of, make_service, queue_of, served

__all__ = ["play"]

_DRAIN_ROUNDS = 40
_DRAIN_STEP = timedelta(seconds=15)


def play(schedule: Schedule, url: str, backend: BackendName) -> tuple[History, Timeline]:
    """Run a schedule to its end, and until nothing is left to do; the changes are to be read yet."""
    gate = StatementGate(list(schedule.choices), delays=schedule.delays)
    clock = VirtualClock(gate=gate)
    machine = _Machine(schedule, url, clock)
    with recorded() as timeline, Troubles(machine.history.notes):
        machine.timeline = timeline
        run(machine.main, backend=backend, clock=clock)
    machine.history.events = list(timeline)
    return machine.history, timeline


@dataclass(eq=False)
class _Instance:
    name: str
    database: ObservedDatabase
    service: Service | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    leave: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    handle: Any = None

    @property
    def is_up(self) -> bool:
        return not (self.database.is_crashed or self.leave.is_set() or self.ended.is_set())


class _Machine:
    def __init__(self, schedule: Schedule, url: str, clock: VirtualClock) -> None:
        self.schedule = schedule
        self.history = History(schedule)
        self.timeline = Timeline()
        self.clock = clock
        self._url = url
        self._jobs: list[Job] = []
        self._together: list[tuple[int, Publish]] = []
        self._runs: dict[int, int] = {}
        self._instances: dict[str, _Instance] = {}
        self._generations = 0
        self._order = 0
        self._tasks: TaskGroup | None = None
        self._observer = open_test_database(url, clock=clock, instance="sql", pool_size=1)

    async def main(self) -> None:
        async with self._observer, anyio.create_task_group() as tasks:
            self._tasks = tasks
            for name in self.schedule.instances:
                await self._start(name)
            for step in self.schedule.steps:
                if isinstance(step, Publish):
                    self._together.append((len(self._jobs), step))
                    self._jobs.append(step.job)
                    if step.with_next:
                        continue
                await self._publish_together()
                if not isinstance(step, Publish):
                    await self._do(step)
                await self.clock.settle()
            await self._publish_together()
            await self._drain()
            for instance in self._instances.values():
                instance.leave.set()

    # Steps.

    async def _do(self, step: Step) -> None:
        match step:
            case Advance(seconds):
                await self.clock.advance(timedelta(seconds=seconds))
            case Crash(name):
                self._note(f"crash of {name}")
                if (instance := self._running(name)) is not None:
                    await instance.database.crash()
                    instance.scope.cancel()
            case Restart(name):
                if self._running(name) is None:
                    await self._start(name)
            case Stop(name, cancel):
                self._note(f"stop of {name}")
                if (instance := self._running(name)) is not None:
                    if cancel and instance.handle is not None:
                        instance.handle.cancel()
                    instance.leave.set()
            case CrashAt(name, script, when):
                if (instance := self._running(name)) is not None:
                    instance.database.faults.crash(script, when=when)
            case Fault():
                if (instance := self._running(step.instance)) is not None:
                    self._arm(instance, step)

    def _arm(self, instance: _Instance, fault: Fault) -> None:
        faults = instance.database.faults
        match fault.kind:
            case "lose reply":
                faults.lose_reply(fault.script, times=fault.times)
            case "refuse":
                faults.refuse(fault.script, times=fault.times)
            case "delay":
                faults.delay(fault.script, fault.seconds, times=fault.times)

    async def _publish_together(self) -> None:
        together, self._together = self._together, []
        async with anyio.create_task_group() as tasks:
            for number, step in together:
                tasks.start_soon(self._publish, number, step.job, step.by, name=f"job {number}")

    async def _publish(self, number: int, job: Job, by: str | None) -> None:
        shape = self.schedule.shape
        columns = columns_of(shape, job, number, self.clock.now())
        queue = queue_of(shape, job)
        instance = self._running(by) if by is not None else None
        if instance is None or instance.service is None:
            if shape != "keyed":
                columns["grp"] = job.group
            assert queue.row is not None
            row = queue.row.of(Task(number), **columns)
            async with self._observer.connection() as connection:
                (id,) = await insert_rows(connection, row)
        else:
            try:
                id = await instance.service.broker.publish(queue, Task(number), **columns)
            except (DatabaseError, CrashedError):
                return  # killed meanwhile; whether the row is there, the trail knows
        self.history.published.append(
            Published(number, id, self.clock.now(), by_broker=instance is not None)
        )

    # Instances.

    def _running(self, name: str) -> _Instance | None:
        instance = self._instances.get(name)
        return instance if instance is not None and instance.is_up else None

    async def _start(self, name: str) -> None:
        self._generations += 1
        called = f"{name}{self._generations}"
        self._note(f"start of {called}")
        database = open_test_database(
            self._url,
            clock=self.clock,
            instance=called,
            pool_size=4,
            random=Random(self._generations),
        )
        instance = self._instances[name] = _Instance(called, database)
        self._end_tasks_at_crash(instance)
        assert self._tasks is not None
        await self._tasks.start(self._serve, instance, name=called)

    def _end_tasks_at_crash(self, instance: _Instance) -> None:
        """A killed process runs no handler on, whoever killed it."""
        switch = instance.database.observed.switch
        throw = switch.throw

        def thrown() -> None:
            if not switch.is_thrown:
                self._note(f"{instance.name} is killed")
            throw()
            instance.scope.cancel()

        switch.throw = thrown  # type: ignore[method-assign]

    async def _serve(
        self, instance: _Instance, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        is_started = False
        try:
            with instance.scope:
                async with instance.database:
                    service = make_service(
                        self.schedule, instance.name, instance.database, self._handler(instance)
                    )
                    async with service.running() as handle:
                        instance.service, instance.handle = service, handle
                        is_started = True
                        task_status.started()
                        await instance.leave.wait()
        except BaseException:
            if not instance.database.is_crashed:
                raise
        finally:
            instance.ended.set()
            if instance.database.is_crashed:
                with anyio.CancelScope(shield=True):
                    await instance.database.crash()
            if not is_started:
                task_status.started()

    # Handlers.

    def _handler(
        self, instance: _Instance
    ) -> Callable[[Task, Delivery[Any, Any]], Awaitable[Outcome | None]]:
        async def handle(message: Task, delivery: Delivery[Any, Any]) -> Outcome | None:
            done = self._runs.get(message.number, 0)
            self._runs[message.number] = done + 1
            acts = self._jobs[message.number].acts
            act = acts[done] if done < len(acts) else Act()
            call = Call(
                instance.name,
                delivery.id,
                message.number,
                delivery.attempt,
                delivery.group or "",
                delivery.key or "",
                self.clock.now(),
                self._next(),
                delivery.deadline,
            )
            self.history.calls.append(call)
            call.ending = "cancelled"
            try:
                if act.seconds:
                    await self.clock.sleep(act.seconds)
                call.ending = act.answer
            finally:
                call.ended_at, call.ended = self.clock.now(), self._next()
            return answered(act)

        return handle

    def _next(self) -> int:
        self._order += 1
        return self._order

    # The end.

    async def _drain(self) -> None:
        for _ in range(_DRAIN_ROUNDS):
            for name in self.schedule.instances:
                if (instance := self._running(name)) is not None:
                    instance.database.faults.clear()
                else:
                    await self._start(name)
            if not await self._left():
                self.history.is_drained = True
                break
            await self.clock.advance(_DRAIN_STEP)

    async def _left(self) -> int:
        groups = ("", "a") if self.schedule.shape == "keyed" else served(self.schedule.shape)
        names = ", ".join(f"'{group}'" for group in groups)
        return await self._observer.fetch_value(  # type: ignore[no-any-return]
            f"SELECT count(*) FROM jobs WHERE processed_at IS NULL AND grp IN ({names})"
        )

    def _note(self, text: str) -> None:
        self.timeline.add(Note(at=self.clock.now(), instance="test", queue="", text=text))
