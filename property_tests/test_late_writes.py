"""Whoever held a row once and writes too late changes nothing, and is told to stop in time."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.oracle import NO_ROW_IS_LOST
from worlds.strategies import late_schedules


def test_a_late_holder_harms_nobody(cell: Cell) -> None:
    cell.check(late_schedules(), *NO_ROW_IS_LOST)
