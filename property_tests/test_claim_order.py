"""Rows are claimed by priority, due time and id, whatever comes when."""

from __future__ import annotations

from hypothesis import strategies as st
from worlds.cells import Cell
from worlds.order import claims_are_in_order
from worlds.strategies import calm_schedules, crowd_schedules

SCHEDULES = st.one_of(calm_schedules(), crowd_schedules())


def test_claims_pass_over_nothing_that_stands_first(cell: Cell) -> None:
    cell.check(SCHEDULES, claims_are_in_order)
