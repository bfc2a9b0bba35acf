"""In one instance, rows of a key are handled one at a time, in the order of their claims."""

from __future__ import annotations

from hypothesis import strategies as st
from worlds.cells import Cell
from worlds.order import claims_are_in_order, keys_keep_their_order
from worlds.schedule import Shape
from worlds.strategies import calm_schedules, crowd_schedules, rough_schedules

KEYED: tuple[Shape, ...] = ("keyed",)
SCHEDULES = st.one_of(
    calm_schedules(shapes=KEYED), crowd_schedules(shapes=KEYED), rough_schedules(shapes=KEYED)
)


def test_rows_of_a_key_are_handled_in_order(cell: Cell) -> None:
    cell.check(SCHEDULES, claims_are_in_order, keys_keep_their_order)
