"""What time waits for: I/O in flight, and transactions inside which it must not pass.

Both live in the task that waits, so they are opened and closed in the loop's thread, and a bracket
closes only when the answer has been *consumed*: a thread or socket that is done while its task has
not run yet still holds the clock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from inboxkit._db.backend import current_task_id

from ._frozen import real_seconds

__all__ = ["Block", "Bracket"]

_NOT_THE_USER = ("inboxkit.", "inboxkit_testing.", "contextlib")


class Bracket:
    """I/O in flight, from entry to exit; used once."""

    __slots__ = ("_open", "label", "since")

    def __init__(self, brackets: dict[Bracket, None], label: str) -> None:
        self._open = brackets
        self.label: str = label
        self.since: float = 0.0
        """Real seconds at the entry."""

    def __enter__(self) -> None:
        self.since = real_seconds()
        self._open[self] = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.pop(self, None)


class Block:
    """A transaction of the service's own, from entry to exit; used once."""

    __slots__ = ("_held_back", "_open", "label", "place", "task")

    def __init__(self, blocks: dict[Block, None], label: str) -> None:
        self._open = blocks
        self.label: str = label
        self.place: str = ""
        """Where it was opened, as ``", opened at shop.py:31"``."""
        self.task: int = 0
        """The id of the task that opened it."""
        self._held_back = 0

    @property
    def is_strict(self) -> bool:
        """Whether time must not pass now."""
        return not self._held_back

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Let time pass meanwhile: the test delays a statement of this block, not the program."""
        self._held_back += 1
        try:
            yield
        finally:
            self._held_back -= 1

    def open(self) -> None:
        """Open it in the current task."""
        self.task = current_task_id()
        self.place = _place_of_user()
        self._open[self] = None

    def close(self) -> None:
        """Close it; more than once does nothing."""
        self._open.pop(self, None)

    def __enter__(self) -> Block:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _place_of_user() -> str:
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_NOT_THE_USER):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f", opened at {frame.f_code.co_filename}:{frame.f_lineno}"
