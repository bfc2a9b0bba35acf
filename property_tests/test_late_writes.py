"""Whoever held a row once and writes too late changes nothing, and is told to stop in time."""

from __future__ import annotations

from hypothesis import strategies as st
from worlds.cells import Cell
from worlds.oracle import NO_ROW_IS_LOST
from worlds.strategies import belated_schedules, late_schedules


def test_a_late_holder_harms_nobody(cell: Cell) -> None:
    cell.check(st.one_of(late_schedules(), belated_schedules()), *NO_ROW_IS_LOST)
