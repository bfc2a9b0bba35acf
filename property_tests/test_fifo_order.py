"""Of a FIFO group one row is in work at a time, and it is the first, over all instances."""

from __future__ import annotations

from hypothesis import strategies as st
from worlds.cells import Cell
from worlds.order import fifo_groups_keep_their_order
from worlds.schedule import Shape
from worlds.strategies import calm_schedules, crowd_schedules, rough_schedules

SHAPES: tuple[Shape, ...] = ("fifo", "bare fifo")
SCHEDULES = st.one_of(
    calm_schedules(shapes=SHAPES, instances=("a", "b")),
    crowd_schedules(SHAPES, ("a", "b")),
    rough_schedules(shapes=SHAPES),
)


def test_two_instances_keep_the_order_of_groups(cell: Cell) -> None:
    cell.check(SCHEDULES, fifo_groups_keep_their_order)
