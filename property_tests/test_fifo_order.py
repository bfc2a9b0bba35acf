"""Of a FIFO group one row is in work at a time, and it is the first, over all instances."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.order import fifo_groups_keep_their_order
from worlds.strategies import calm_schedules, rough_schedules

FIFO = ("fifo", "bare fifo")


def test_two_instances_keep_the_order_of_groups(cell: Cell) -> None:
    cell.check(calm_schedules(shapes=FIFO, instances=("a", "b")), fifo_groups_keep_their_order)


def test_crashes_and_lost_answers_keep_the_order_of_groups(cell: Cell) -> None:
    cell.check(rough_schedules(shapes=FIFO), fifo_groups_keep_their_order)
