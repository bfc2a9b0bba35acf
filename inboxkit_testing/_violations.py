"""How a broken rule is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from inboxkit import events

from ._facts import Moment, RowKey, key_of
from .errors import InvariantViolation
from .timeline import line_of

if TYPE_CHECKING:
    from .history import History

__all__ = ["broken"]

_MOST_LINES = 24


def broken(
    history: History,
    rule: str,
    row: RowKey,
    text: str,
    *moments: Moment | None,
    with_rows: Iterable[RowKey] = (),
) -> NoReturn:
    """Raise, with the part of the timeline that is about these rows.

    Args:
        history: Of the run.
        rule: The check.
        row: The row that it is about.
        text: What is wrong.
        moments: The events that do not go together.
        with_rows: Others that it is about.
    """
    found = sorted({m.index: m for m in moments if m is not None}.values(), key=lambda m: m.index)
    rows = {row, *with_rows}
    about = [m for m in history.moments if _is_about(m.event, rows, found)]
    told = _instances(found)
    raise InvariantViolation(
        f"{rule}: row {row.id!r} of queue {row.queue!r}{told}: {text}\n{_part(history, about, found)}",
        rule=rule,
        queue=row.queue,
        id=row.id,
        events=[moment.event for moment in found],
    )


def _instances(moments: Sequence[Moment]) -> str:
    names = dict.fromkeys(repr(m.event.instance) for m in moments if m.event.instance)
    return f" at {' and '.join(names)}" if names else ""


def _is_about(event: events.Event, rows: set[RowKey], found: Sequence[Moment]) -> bool:
    if isinstance(event, events.RowEvent | events.Published):
        return key_of(event) in rows
    return event.instance in {moment.event.instance for moment in found}


def _part(history: History, about: Sequence[Moment], found: Sequence[Moment]) -> str:
    """At most so many lines, around the events that matter, which are marked."""
    marked = {moment.index for moment in found}
    places = [n for n, moment in enumerate(about) if moment.index in marked]
    if len(about) > _MOST_LINES and places:
        around = {near for n in places for near in range(n - 4, n + 5)}
        around.update(range(places[0], min(places[-1], places[0] + _MOST_LINES)))
        chosen = [n for n in range(len(about)) if n in around]
    else:
        chosen = list(range(len(about)))[-_MOST_LINES:]
    start = history.moments[0].at
    lines: list[str] = []
    before = -1
    for n in chosen:
        if n != before + 1:
            lines.append("      …")
        moment = about[n]
        mark = ">" if moment.index in marked else " "
        lines.append(f"{mark} {line_of(moment.event, start, moment.at)}")
        before = n
    return "\n".join(lines)
