"""In one instance, rows of a key are handled one at a time, in the order of their claims."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.order import claims_are_in_order, keys_keep_their_order
from worlds.strategies import calm_schedules, rough_schedules


def test_rows_of_a_key_are_handled_in_order(cell: Cell) -> None:
    cell.check(calm_schedules(shapes=("keyed",)), claims_are_in_order, keys_keep_their_order)


def test_crashes_and_lost_answers_keep_the_order_of_keys(cell: Cell) -> None:
    cell.check(rough_schedules(shapes=("keyed",)), keys_keep_their_order)
