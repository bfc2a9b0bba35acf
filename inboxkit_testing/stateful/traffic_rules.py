"""Rules that publish: their strategies are a subclass's own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from inboxkit_testing.crashpoints import When

from .traffic import Draft

if TYPE_CHECKING:
    from .machine import CrashAndResume

__all__ = [
    "crash_while_handling",
    "keep_crashing",
    "late_while_handling",
    "lose_leases_while_handling",
    "publish",
    "refuse_while_handling",
]


def publish(machine: CrashAndResume, rows: list[Draft], by: str | None, order: int) -> None:
    """Rows are published."""
    machine.step(order, machine.steps.publish, rows, by)


def crash_while_handling(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    statement: int | str,
    when: When,
    order: int,
) -> None:
    """Rows are published by an instance that crashes, or loses a reply, on the way."""
    name = _one_that_runs(machine, name, order)
    machine.step(order, machine.steps.crash_at, name, statement, when)
    machine.step(None, machine.steps.publish, rows, name)


def refuse_while_handling(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    statement: int | str,
    times: int,
    order: int,
) -> None:
    """Rows are published by an instance to which the database is away for a moment on the way."""
    name = _one_that_runs(machine, name, order)
    machine.step(order, machine.steps.refuse, name, statement, times)
    machine.step(None, machine.steps.publish, rows, name)


def late_while_handling(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    statement: int | str,
    seconds: float,
    order: int,
) -> None:
    """Rows are published by an instance that is slow on the way, while another one goes on."""
    name = _one_that_runs(machine, name, order)
    machine.step(order, machine.steps.delay_at, name, statement, seconds)
    _publish_beside_another(machine, rows, name)
    machine.step(None, machine.steps.advance, seconds)


def lose_leases_while_handling(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    late: int | str | None,
    seconds: float,
    order: int,
) -> None:
    """Rows are published by an instance that cannot renew their leases, until another one has them.

    It may be slow on the way as well. What takes less time than a lease is not disturbed.
    """
    name = _one_that_runs(machine, name, order)
    machine.step(order, machine.steps.refuse, name, "renew", 50)
    if late is not None:
        machine.step(None, machine.steps.delay_at, name, late, seconds)
    _publish_beside_another(machine, rows, name)
    machine.step(None, machine.steps.advance, seconds)


def keep_crashing(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    crashes: list[tuple[int | str, When]],
    seconds: float,
    order: int,
) -> None:
    """One host fails several times in a row, and is started again each time."""
    steps = machine.steps
    machine.step(order, steps.publish, rows, None)
    for statement, when in crashes:
        if steps.first_down([name]) is not None:
            machine.step(None, steps.start, name, timedelta(0), 0.0)
        machine.step(None, steps.crash_at, name, statement, when)
        machine.step(None, steps.advance, seconds)


def _one_that_runs(machine: CrashAndResume, name: str, order: int) -> str:
    """This one if it runs, else another one that does, started if need be."""
    steps = machine.steps
    for each in (name, *machine.hosts):
        if steps.runs(each):
            return each
    down = steps.first_down(machine.hosts)
    if down is None:
        return name  # all are about to stop
    machine.step(order, steps.start, down, timedelta(0), 0.0)
    return down


def _publish_beside_another(machine: CrashAndResume, rows: list[Draft], name: str) -> None:
    """Have an instance publish, and see that another one runs that can go on."""
    steps = machine.steps
    machine.step(None, steps.publish, rows, name)
    other = steps.first_down(machine.hosts)
    if other is not None and not any(steps.runs(each) for each in machine.hosts if each != name):
        machine.step(None, steps.start, other, timedelta(0), 0.0)
