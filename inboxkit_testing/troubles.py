"""What a `World` does to its instances short of killing them: statements late or refused; and calm."""

from __future__ import annotations

from .crashpoints import COUNTED
from .faults import Fault, Operation
from .marks import Armed, send
from .population import Population

__all__ = ["Troubles"]


class Troubles(Population):
    """A population whose statements can be made to go wrong, until `calm`."""

    def delay_at(self, name: str, statement: int | str, seconds: float) -> Fault:
        """Hold back one statement that an instance is still to send, as a slow network would.

        Time passes meanwhile, also inside a transaction of the service's own; the instance's other
        connections go on.

        Args:
            name: Whose.
            statement: The k-th that is sent from now, from 1: statements, COMMITs and, on SQLite,
                each script of the runtime as one; or the next of that name, such as ``"settle"``.
            seconds: For so long, in true seconds.

        Returns:
            The fault; its `hits` says whether it has struck.

        Raises:
            LookupError, ClosedError: The instance is unknown, or does not run.
            ValueError: A number below 1, an empty name, or no time at all.
        """
        instance = self._running(name, "delay_at")
        if not seconds > 0:
            raise ValueError(f"delay_at({name!r}): seconds must be above zero, not {seconds!r}")
        is_number = isinstance(statement, int) and not isinstance(statement, bool)
        if not (isinstance(statement, str) and statement) and not (is_number and statement >= 1):  # type: ignore[operator]
            raise ValueError(
                f"delay_at({name!r}): a statement is a number from 1 or a name, not {statement!r}"
            )
        faults = instance.database.faults
        first = instance.database.recording.next_number
        if isinstance(statement, str):
            fault = faults.delay(statement, seconds)
        else:
            fault = faults.delay(_is_sent, seconds, nth=statement)
        fault.told = f"delay_at({name!r}, {statement!r}, {seconds!r})"
        self._armed.append((fault, instance.database.recording, first))
        which = f"statement {statement}" if isinstance(statement, int) else repr(statement)
        text = f"from now: {which} is held back for {seconds:g} s"
        send(Armed(at=self.clock.now(), instance=name, queue="", text=text))
        return fault

    def refuse(self, name: str, statement: int | str, *, times: int = 1) -> Fault:
        """Have statements fail before they are sent: `DatabaseBusyError`, nothing happened.

        Args:
            name: Whose.
            statement: The k-th that is sent from now, from 1, counted as by `crash_at`; or the next of
                that name, or script of that name, such as ``"claim"``, ``"renew"``, ``"settle"``, or
                ``"execute"`` and ``"fetch"``, as those of the service's own are called.
            times: How many from there on; at least 1.

        Returns:
            The fault; its `hits` says how often it has struck.

        Raises:
            LookupError, ClosedError: The instance is unknown, or does not run.
            ValueError: A number below 1, an empty name, or less than once.
        """
        instance = self._running(name, "refuse")
        is_number = type(statement) is int and statement >= 1
        if not (is_number or (isinstance(statement, str) and statement)) or times < 1:
            raise ValueError(
                f"refuse({name!r}): name what is refused, or count it from 1, at least once; got "
                f"{statement!r}, {times!r}"
            )
        faults = instance.database.faults
        first = instance.database.recording.next_number
        if isinstance(statement, str):
            fault = faults.refuse(statement, times=times)
        else:
            fault = faults.refuse(_is_counted, times=times, nth=statement)
        fault.told = f"refuse({name!r}, {statement!r}, times={times})"
        self._armed.append((fault, instance.database.recording, first))
        which = repr(statement) if isinstance(statement, str) else f"statement {statement}"
        text = f"from now: {which} is refused, {times} times"
        send(Armed(at=self.clock.now(), instance=name, queue="", text=text))
        return fault

    async def calm(self) -> None:
        """Call off everything that is still to go wrong, heal what is cut, see that an instance runs.

        What is called off does not count as missed. Where no instance runs, the last that did is
        started again, with the right clock; ``"a"`` where there was none.
        """
        self._open()
        self._armed.clear()
        for name, instance in list(self._instances.items()):
            instance.database.faults.clear()
            if instance.is_up and instance.is_cut:
                self.heal(name)
        serving = [n for n, instance in self._instances.items() if instance.state == "running"]
        if serving:
            return
        name = next(reversed(self._instances), "a")
        if name in self._instances:
            before = self._instances[name]
            if before.state == "stopping":
                await before.ended()
            before.error_was_told = True  # it is started again, as a supervisor would
        await self.start(name)


def _is_sent(operation: Operation) -> bool:
    return operation.kind in {"script", "statement", "commit"}


def _is_counted(operation: Operation) -> bool:
    return operation.kind in COUNTED
