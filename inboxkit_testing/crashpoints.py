"""Chosen statements of one instance at which it crashes, or loses a reply."""

from __future__ import annotations

from typing import Literal, get_args

from .databases import ObservedDatabase
from .faults import Fault, Operation

__all__ = ["COUNTED", "When", "arm_crash"]

When = Literal["before", "after", "reply lost"]

COUNTED = ("statement", "commit")
"""Kinds of what has a number."""


def arm_crash(database: ObservedDatabase, statement: int | str, when: When) -> Fault:
    """Have it happen at the k-th statement or COMMIT from now, or at the next of that name.

    Raises:
        ValueError: A number below 1, an empty name, or no such moment.
    """
    if when not in get_args(When):
        raise ValueError(f"a crash is 'before', 'after' or at 'reply lost', not {when!r}")
    faults = database.faults
    if isinstance(statement, str):
        if not statement:
            raise ValueError("a statement's name is not empty, such as 'claim' or 'settle'")
        if when == "reply lost":
            return faults.lose_reply(statement)
        return faults.crash(statement, when=when)
    if type(statement) is not int or statement < 1:
        raise ValueError(f"statements are counted from 1, so there is none of number {statement!r}")
    if when == "reply lost":
        return faults.lose_reply(_Sent(database, statement).ends_with)
    return faults.crash(lambda operation: operation.kind in COUNTED, when=when, nth=statement)


class _Sent:
    """Finds the operation whose reply tells of the k-th thing that is sent from now.

    On SQLite a script has one reply, whichever of its statements that was.
    """

    def __init__(self, database: ObservedDatabase, k: int) -> None:
        self._recording = database.recording
        self._first = database.recording.next_number
        self._k = k

    def ends_with(self, operation: Operation) -> bool:
        sent = (
            each for each in self._recording if each.number >= self._first and each.kind in COUNTED
        )
        found = next((each for n, each in enumerate(sent, 1) if n == self._k), None)
        if found is None:
            return False
        if operation.kind == "script":
            return found.number >= operation.number and found.script == operation.name
        return found.number == operation.number
