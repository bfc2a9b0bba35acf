"""Undisturbed, deliveries read 1, 2, 3 …, end as their handlers say, and stop at the cap."""

from __future__ import annotations

from worlds.cells import Cell
from worlds.oracle import attempts_are_counted, goes_as_scripted, the_cap_holds
from worlds.strategies import calm_schedules


def test_each_row_is_delivered_as_often_as_its_answers_ask(cell: Cell) -> None:
    schedules = calm_schedules(
        shapes=("plain", "kept", "fifo", "bare fifo", "keyed"), instances=("a", "b")
    )
    cell.check(schedules, goes_as_scripted, attempts_are_counted, the_cap_holds)
