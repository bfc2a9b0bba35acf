"""No row is lost, settled twice or in two hands, whatever is killed and whichever answers are lost."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.oracle import NO_ROW_IS_LOST
from worlds.strategies import rough_schedules


def test_no_row_is_lost_or_settled_twice(cell: Cell) -> None:
    cell.check(rough_schedules(), *NO_ROW_IS_LOST)
