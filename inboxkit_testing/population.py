"""The instances of a world: started, stopped, crashed, cut off."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType

from anyio.abc import TaskGroup

from inboxkit import Database, Service
from inboxkit.errors import ClosedError, DeclarationError

from .clock import VirtualClock
from .crashpoints import COUNTED, When, arm_crash
from .databases import ObservedDatabase
from .faults import Fault
from .instances import Instance
from .links import How
from .marks import Armed, Cut, Healed, Note, send
from .recording import Recording

__all__ = ["Population"]

_ZERO = timedelta(0)


class Population:
    """What a `World` does with its instances.

    Args:
        factory: Makes the service over the database that it is given, anew for each start.
        database: An open database in virtual time.
    """

    def __init__(self, factory: Callable[[Database], Service], database: ObservedDatabase) -> None:
        self.database: ObservedDatabase = database
        """The world's own view: nothing goes wrong with it."""
        self.clock: VirtualClock = database.observed.time
        """The true time."""
        self._factory = factory
        self._instances: dict[str, Instance] = {}
        self._starts = 0
        self._tasks: TaskGroup | None = None
        self._armed: list[tuple[Fault, Recording, int]] = []

    @property
    def instances(self) -> Mapping[str, Instance]:
        """By name, the last of each that was started: its `database`, `service`, `clock`, `state`."""
        return MappingProxyType(self._instances)

    @property
    def running(self) -> tuple[str, ...]:
        """Names of the instances that run, in order of their starts; those that are stopping too."""
        return tuple(name for name, instance in self._instances.items() if instance.is_up)

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
        instance.database.observed.kept = self.database.observed.kept
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
                ROLLBACK do not count; a run has other numbers on another database); or the next of
                that name, or script of that name, such as ``"claim"``, ``"settle"`` or ``"commit"``, in
                capitals or not.
            when: ``"before"`` it is sent; ``"after"`` it was done, whose answer is never seen; or
                ``"reply lost"``: it was done, the connection breaks, and the instance lives on. What
                was done inside a transaction is undone with it.

        Returns:
            The fault; its `hits` says whether it has struck. If it has not, and nobody looked at
                `hits`, the end of the world warns, and tells the names of what was sent.

        Raises:
            LookupError, ClosedError: It is unknown, or does not run.
            ValueError: A number below 1, an empty name, or no such moment. What names there will be is
                not known beforehand.
        """
        instance = self._running(name, "crash_at")
        sent = instance.database.recording.next_number
        fault = arm_crash(instance.database, statement, when)
        fault.told = f"crash_at({name!r}, {statement!r}, {when!r})"
        self._armed.append((fault, instance.database.recording, sent))
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

    def _warn_of_unhit(self) -> None:
        """A crash that never came to pass, and that nobody asked about, has tested nothing."""
        for fault, recording, first in self._armed:
            if fault.has_struck or fault.was_asked:
                continue
            sent = [one for one in recording if one.number >= first]
            names = {name for one in sent for name in (one.script, one.name) if name}
            told = ", ".join(map(repr, sorted(names))) or "nothing"
            counted = sum(one.kind in COUNTED for one in sent)
            warnings.warn(
                f"{fault} has never struck; sent since were {counted} statements and COMMITs, by "
                f"names: {told}. Look at its `hits` where that may be",
                stacklevel=3,
            )

    @staticmethod
    def _tell_error(instance: Instance | None) -> None:
        """An instance that ended by itself says why, once."""
        if instance is not None and instance.error is not None and not instance.error_was_told:
            instance.error_was_told = True
            raise instance.error
