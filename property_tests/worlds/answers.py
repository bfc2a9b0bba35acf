"""What a handler answers, and what the library logs about it."""

from __future__ import annotations

import logging
from datetime import timedelta

from inboxkit import Outcome, Settle, ack, drop, retry, retry_after

from .schedule import Act

__all__ = ["Troubles", "answered"]


def answered(act: Act) -> Outcome | None:
    """What the handler returns or raises."""
    match act.answer:
        case "ack":
            return ack()
        case "none":
            return None
        case "drop":
            return drop("as told")
        case "retry":
            return retry()
        case "retry after":
            return retry_after(timedelta(seconds=act.delay))
        case "settle ack":
            raise Settle(ack())
        case "raise":
            raise RuntimeError("as told")


class Troubles(logging.Handler):
    """Notes what the library logs beside events."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) is None:
            self._notes.append(record.getMessage())

    def __enter__(self) -> None:
        logger = logging.getLogger("inboxkit")
        logger.addHandler(self)
        logger.propagate = False  # a run of two hundred examples is no log that anybody reads

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("inboxkit")
        logger.removeHandler(self)
        logger.propagate = True
