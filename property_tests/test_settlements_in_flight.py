"""What workers may begin while settlements are in flight, whatever becomes of those."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.oracle import NO_ROW_IS_LOST
from worlds.order import fifo_groups_keep_their_order, keys_keep_their_order
from worlds.overlap import answers_come_first, rows_in_work_are_bounded
from worlds.strategies import settling_schedules


def test_no_row_is_lost_and_those_in_work_are_bounded(cell: Cell) -> None:
    cell.check(
        settling_schedules(shapes=("plain", "kept")), rows_in_work_are_bounded, *NO_ROW_IS_LOST
    )


def test_a_group_waits_for_the_answer(cell: Cell) -> None:
    schedules = settling_schedules(shapes=("fifo", "bare fifo"))
    cell.check(schedules, answers_come_first, fifo_groups_keep_their_order, *NO_ROW_IS_LOST)


def test_a_key_waits_for_the_answer(cell: Cell) -> None:
    cell.check(settling_schedules(shapes=("keyed",)), answers_come_first, keys_keep_their_order)
