"""What happened to rows, told from events: for a terminal, and for assertions on a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from inboxkit import events

from .marks import Began, Ended, Note
from .processes import current_process

__all__ = ["Note", "Timeline", "describe", "line_of", "recorded"]

_logger = logging.getLogger("inboxkit")
_latest: list[Timeline] = []


class Timeline:
    """Events of one or more services, in the order in which they happened."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.times: list[datetime] = []
        """When each happened by the true clock: an event's own `at` is its instance's."""

    def add(self, event: events.Event, at: datetime | None = None) -> None:
        """Take in one event, which happened then; None: when it says so."""
        self.events.append(event)
        self.times.append(at or event.at)

    def of(self, kind: type[events.Event], *, queue: str | None = None) -> list[events.Event]:
        """The events of one kind, of one queue or of all."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and (queue is None or event.queue == queue)
        ]

    def lines(self, start: datetime | None = None) -> list[str]:
        """One line an event: time since the start, queue, row, what happened.

        Args:
            start: What times are counted from; None: the first event's.
        """
        if not self.events:
            return []
        start = start or self.times[0]
        pairs = zip(self.events, self.times, strict=True)
        return [line_of(event, start, at) for event, at in pairs]

    def write_html(self, path: str | Path, *, title: str = "Timeline") -> None:
        """Write it as a page that needs nothing else: a lane for each instance and each row."""
        from .page import render  # noqa: PLC0415 - seldom asked for

        Path(path).write_text(render(self, title=title), encoding="utf-8")

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[events.Event]:
        return iter(self.events)


class _Collector(logging.Handler):
    def __init__(self, take: Callable[[events.Event, datetime], None]) -> None:
        super().__init__(logging.DEBUG)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if not isinstance(event, events.Event):
            return
        process = current_process.get()
        if process is None:
            self._take(event, event.at)
        elif not process.is_crashed or isinstance(event, Note):
            self._take(event, process.true_now())


@contextmanager
def recorded(*listeners: Callable[[events.Event], None]) -> Iterator[Timeline]:
    """Record what services in this process do, inside the block.

    The logger ``inboxkit`` lets DEBUG records pass meanwhile, since claims and renewals are such;
    handlers of other loggers see no more than they did. Of an instance that a `World` has crashed
    nothing more is taken in, whatever its tasks do until they end.

    Args:
        listeners: Called with each event as it happens.
    """
    timeline = Timeline()
    _latest[:] = [timeline]

    def take(event: events.Event, at: datetime) -> None:
        timeline.add(event, at)
        for listener in listeners:
            listener(event)

    collector = _Collector(take)
    # Others are to see no more than before: where the logger's own level kept records back, that is
    # asked of each handler above it instead, for as long as the level is open.
    quiet = _Quiet(_logger.getEffectiveLevel())
    others = list(_handlers_above(_logger))
    level = _logger.level
    for handler in others:
        handler.addFilter(quiet)
    _logger.addHandler(collector)
    _logger.setLevel(logging.DEBUG)
    try:
        yield timeline
    finally:
        _logger.setLevel(level)
        _logger.removeHandler(collector)
        for handler in others:
            handler.removeFilter(quiet)


def latest() -> Timeline | None:
    """What was recorded last, or is being recorded, since `forget`; for the kit."""
    return _latest[0] if _latest else None


def forget() -> None:
    """Nothing was recorded so far; for the kit."""
    _latest.clear()


class _Quiet(logging.Filter):
    """Keeps from a handler what the logger's level would have kept from it.

    A level that somebody has set meanwhile is heeded, as that of ``caplog.at_level``.
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        level = self._level if _logger.level == logging.DEBUG else _logger.level
        return record.levelno >= level or record.name != _logger.name


def _handlers_above(logger: logging.Logger) -> Iterator[logging.Handler]:
    current: logging.Logger | None = logger
    while current is not None:
        yield from (h for h in current.handlers if not isinstance(h, _Collector))
        current = current.parent if current.propagate else None


def line_of(event: events.Event, start: datetime, at: datetime | None = None) -> str:
    """One line: time since `start`, instance and queue or group, row, what happened."""
    row, queue = "", event.queue
    if isinstance(event, events.RowEvent):
        row = f"row {event.id}"
        queue = event.group or queue  # one subscription may serve every group of its table
    place = "/".join(dict.fromkeys(name for name in (event.instance, queue) if name))
    return (
        f"{_since((at or event.at) - start):>15}  {place:<19} {row:<7} {describe(event)}".rstrip()
    )


def describe(event: events.Event) -> str:  # noqa: PLR0911, PLR0912 - one arm an event
    """What happened, in a few words."""
    match event:
        case events.Published(id=id):
            return f"row {id} published"
        case events.Claimed(attempt=attempt, locked_until=until):
            number = "" if attempt is None else f", attempt {attempt}"
            return f"claimed{number}{_until(event.at, until)}"
        case events.Renewed(locked_until=until):
            return f"lease renewed{_until(event.at, until)}"
        case events.Lost(reason=reason):
            return f"LEASE LOST: {reason}"
        case events.Finished(outcome=outcome, reason=reason):
            return {"ack": "acked", "drop": "dropped"}[outcome] + (f": {reason}" if reason else "")
        case events.Failed(error=error):
            return f"FAILED: {error}"
        case events.Retried(delay=delay):
            return f"to be handed out again {f'in {_since(delay)}' if delay else 'at once'}"
        case events.DeadLettered(destination=destination):
            return f"DEAD LETTER to {destination}"
        case events.Released(given_back=given_back):
            return "released" + (", attempt given back" if given_back else "")
        case events.OutcomeUnknown():
            return "settlement's answer lost"
        case Note(text=text):
            return text
        case Began():
            return "handler begins"
        case Ended(outcome=outcome):
            return f"handler ends: {outcome}"
        case events.Started():
            return "service started"
        case events.Stopped():
            return "service stopped"
        case _:
            return type(event).__name__


def _until(at: datetime, until: datetime | None) -> str:
    return "" if until is None else f", lease for {_since(until - at)}"


def _since(duration: timedelta) -> str:
    """Days, hours, minutes and seconds, with milliseconds where there are any."""
    seconds = duration.total_seconds()
    sign = "-" if seconds < 0 else ""
    whole, rest = divmod(abs(seconds), 1)
    days, left = divmod(int(whole), 86_400)
    hours, left = divmod(left, 3600)
    minutes, left = divmod(left, 60)
    fraction = f".{int(rest * 1000):03d}" if int(rest * 1000) else ""
    clock = f"{hours:02d}:{minutes:02d}:{left:02d}{fraction}"
    return f"{sign}{days}d {clock}" if days else f"{sign}{clock}"
