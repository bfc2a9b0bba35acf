"""A timeline as one HTML page that needs nothing else: a lane for each instance and each row."""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from inboxkit import events

from ._facts import Facts, Hold, Moment, RowKey, Run, gather, key_of
from .marks import Began, Crashed, Cut, Healed, Note
from .timeline import Timeline, describe

__all__ = ["render"]

_MOST_LINES_WITHOUT_SCRIPT = 500
_NEVER = datetime.min.replace(tzinfo=UTC)


def render(timeline: Timeline, *, title: str = "Timeline") -> str:
    """The page's text.

    Args:
        timeline: Of any length; of thousands of rows only those in view are drawn.
        title: At its head.
    """
    template = files(__package__ or "inboxkit_testing").joinpath("timeline_page.html")
    lines = timeline.lines()
    plain = "\n".join(lines[:_MOST_LINES_WITHOUT_SCRIPT])
    if len(lines) > _MOST_LINES_WITHOUT_SCRIPT:
        plain += f"\n… and {len(lines) - _MOST_LINES_WITHOUT_SCRIPT} more"
    # Ids, errors and names are anybody's: in a script element only "<" could end it.
    data = json.dumps(_Page(timeline).data(), ensure_ascii=False, separators=(",", ":"))
    parts = {"TITLE": html.escape(title), "PLAIN": html.escape(plain)}
    page = template.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"@@{name}@@", text)
    return page.replace("@@DATA@@", data.replace("<", "\\u003c"))


class _Page:
    def __init__(self, timeline: Timeline) -> None:
        pairs = zip(timeline.times, timeline.events, strict=True)
        moments = [Moment(index, at, event) for index, (at, event) in enumerate(pairs)]
        self._start = min((moment.at for moment in moments), default=_NEVER)
        self._facts: Facts = gather(moments)
        self._instances: dict[str, int] = {}
        self._rows: dict[RowKey, int] = {}
        self._bars: list[list[Any]] = []

    def data(self) -> dict[str, Any]:
        """What the page draws; times are seconds since the start."""
        listed = [self._event(moment) for moment in self._facts.moments]
        for hold in self._facts.holds:
            self._add_hold(hold)
        for run in self._facts.runs:
            self._add_run(run)
        self._add_lives_of_instances()
        return {
            "start": "" if not listed else self._start.isoformat(),
            "instances": list(self._instances),
            "rows": [[row.queue, str(row.id)] for row in self._rows],
            "events": listed,
            "bars": self._bars,
        }

    def _event(self, moment: Moment) -> list[Any]:
        """Time, instance, row (-1: none), kind, text."""
        event = moment.event
        kind = "Note" if isinstance(event, Note) else type(event).__name__
        if isinstance(event, Crashed | Cut | Healed):
            kind = type(event).__name__
        return [
            self._seconds(moment.at),
            self._instance(event.instance),
            self._row(event),
            kind,
            describe(event),
        ]

    def _add_hold(self, hold: Hold) -> None:
        end = hold.end or hold.death or self._last()
        self._bar("hold", hold.row, hold.claimed, end)
        until = hold.renewals[-1][1] if hold.renewals else hold.event.locked_until
        if hold.end is None and until is not None:
            # The lease is by the instance's own clock, as its events are.
            rest = until - (hold.renewals[-1][0] if hold.renewals else hold.claimed).event.at
            since = (hold.renewals[-1][0] if hold.renewals else hold.claimed).at
            self._bar("rest", hold.row, end, since + rest)

    def _add_run(self, run: Run) -> None:
        self._bar("run", run.row, run.began, run.ended or self._last())

    def _add_lives_of_instances(self) -> None:
        up: dict[str, Moment] = {}
        cut: dict[str, Moment] = {}
        for moment in self._facts.moments:
            name = moment.event.instance
            match moment.event:
                case events.Started():
                    up[name] = moment
                case Cut():
                    cut[name] = moment
                case Healed():
                    self._end("cut", cut, name, moment)
                case events.Stopped() | Crashed():
                    self._end("up", up, name, moment)
                    self._end("cut", cut, name, moment)
        for kind, open_ones in (("up", up), ("cut", cut)):
            for name in list(open_ones):
                self._end(kind, open_ones, name, self._last())

    def _end(self, kind: str, open_ones: dict[str, Moment], name: str, end: Moment) -> None:
        if (begin := open_ones.pop(name, None)) is not None:
            place = self._instance(name)
            self._bars.append([kind, place, -1, self._seconds(begin.at), self._seconds(end.at)])

    def _bar(self, kind: str, row: RowKey, begin: Moment, end: Moment | datetime) -> None:
        at = end.at if isinstance(end, Moment) else end
        place = self._instance(begin.event.instance)
        if at > begin.at or kind != "rest":
            bar = [kind, place, self._rows[row], self._seconds(begin.at), self._seconds(at)]
            self._bars.append(bar)

    def _row(self, event: events.Event) -> int:
        if not isinstance(event, events.RowEvent | events.Published | Began):
            return -1
        return self._rows.setdefault(key_of(event), len(self._rows))

    def _instance(self, name: str) -> int:
        return self._instances.setdefault(name, len(self._instances))

    def _last(self) -> Moment:
        return self._facts.moments[-1]

    def _seconds(self, at: datetime) -> float:
        return round((at - self._start) / timedelta(seconds=1), 6)
