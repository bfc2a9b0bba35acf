"""Rules that publish: their strategies are a subclass's own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from inboxkit_testing.crashpoints import When

from .traffic import Draft

if TYPE_CHECKING:
    from .machine import CrashAndResume

__all__ = ["crash_while_handling", "keep_crashing", "late_while_handling", "publish"]


def publish(machine: CrashAndResume, rows: list[Draft], by: str | None, order: int) -> None:
    """Rows are published."""
    machine.step(order, machine.steps.publish, rows, by)


def crash_while_handling(
    machine: CrashAndResume, *, rows: list[Draft], name: str, statement: int, when: When, order: int
) -> None:
    """Rows are published by an instance that crashes, or loses a reply, on the way."""
    machine.step(order, machine.steps.crash_at, name, statement, when)
    machine.step(None, machine.steps.publish, rows, name)


def late_while_handling(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    statement: int,
    seconds: float,
    renewed: bool,
    order: int,
) -> None:
    """Rows are published by an instance that is slow on the way, while another one goes on.

    Unless it is renewed, its leases are lost meanwhile.
    """
    steps = machine.steps
    machine.step(order, steps.delay_at, name, statement, seconds)
    if not renewed and steps.facts.has_leases:
        machine.step(None, steps.refuse, name, "renew", 50)
    machine.step(None, steps.publish, rows, name)
    other = steps.first_down(machine.hosts)
    if other is not None and not any(steps.runs(each) for each in machine.hosts if each != name):
        machine.step(None, steps.start, other, timedelta(0), 0.0)
    machine.step(None, steps.advance, seconds)


def keep_crashing(
    machine: CrashAndResume,
    *,
    rows: list[Draft],
    name: str,
    crashes: list[tuple[int, When]],
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
