"""What is published or retried here is handed out when it is due: no wake is lost, no poll awaited."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.oracle import nothing_is_lost
from worlds.order import nothing_due_waits_for_a_free_worker
from worlds.strategies import calm_schedules

HOUR = 3600.0
SCHEDULES = calm_schedules(by=("a",), poll=HOUR)


def test_a_due_row_waits_only_for_workers(cell: Cell) -> None:
    cell.check(SCHEDULES, nothing_due_waits_for_a_free_worker, nothing_is_lost)
