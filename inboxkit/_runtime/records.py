"""Records of the log: their texts, and which row they are about, as attributes."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from inboxkit import events

from .held import Held

__all__ = [
    "about",
    "about_event",
    "attempt_of",
    "describe_error",
    "escape",
    "log",
    "logger",
    "place",
    "printable",
]

logger = logging.getLogger("inboxkit")

_LONGEST_ERROR = 500


def describe_error(error: BaseException) -> str:
    """The error's type and text, printable and short whatever is in it."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the failure
        text = f"<its text cannot be made: {type(second).__name__}>"
    text = printable(text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def printable(text: str) -> str:
    """A text of the user's as a line of the log: escaped where it must be, and cut."""
    text = text[: _LONGEST_ERROR + 1]
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text[:_LONGEST_ERROR] + "…" if len(text) > _LONGEST_ERROR else text


def place(queue: str, group: str | None) -> str:
    """Where a row is, for messages: the group is named where the queue is not called like it."""
    return f"queue {queue!r}" if group in (None, queue) else f"queue {queue!r}, group {group!r}"


def about(queue: str, held: Held) -> dict[str, Any]:
    """What every record about a row has: which row it is, as attributes of the record."""
    claimed = held.claimed
    return {
        "queue": queue,
        "row_id": held.id,
        "attempt": claimed.attempt,
        "group": claimed.group,
    }


def about_event(event: events.RowEvent) -> dict[str, Any]:
    """The same of an event, and the event."""
    return {
        "event": event,
        "queue": event.queue,
        "row_id": event.id,
        "attempt": event.attempt,
        "group": event.group,
    }


def attempt_of(held: Held) -> str:
    """The delivery's number, for messages."""
    attempt = held.claimed.attempt
    return "" if attempt is None else f", attempt {attempt}"


def log(level: int, text: str, *arguments: Any, **extra: Any) -> None:
    """Send a record. A log handler of the user's may raise: no row is lost or stuck for it."""
    with suppress(Exception):
        logger.log(level, text, *arguments, **extra)


def escape(text: str) -> str:
    """A text inside one that has placeholders."""
    return text.replace("%", "%%")
