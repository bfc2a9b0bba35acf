"""A line for each queue below the log, on a terminal, while a service runs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .counting import Counts
from .showing import columns, plural

__all__ = ["Progress"]


class Progress:
    """Shows counts as they grow; from a thread of rich's, so that a busy loop is no matter.

    Args:
        counts: What is shown.
        console: Where; the log goes there too, above.
    """

    def __init__(self, counts: Counts, console: Console) -> None:
        self._counts = counts
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def _render(self) -> Text:
        try:
            heads, rows = self._counts.table()
            lines = columns(heads, rows) if rows else []
        except RuntimeError:
            return Text("…")  # a queue was first heard of just now, in the other thread
        return Text("\n".join([*lines, f"{plural(len(self._counts.in_work), 'row')} in work"]))
