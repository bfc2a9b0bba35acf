"""In one instance, rows of a key are handled one at a time, in the order of their claims."""

from __future__ import annotations

from hypothesis import strategies as st
from worlds.cells import Cell
from worlds.order import claims_are_in_order, keys_keep_their_order
from worlds.strategies import calm_schedules, rough_schedules

SCHEDULES = st.one_of(calm_schedules(shapes=("keyed",)), rough_schedules(shapes=("keyed",)))


def test_rows_of_a_key_are_handled_in_order(cell: Cell) -> None:
    cell.check(SCHEDULES, claims_are_in_order, keys_keep_their_order)
