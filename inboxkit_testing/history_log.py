"""A real run's events in a file: one JSON object a line, written as they happen."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from inboxkit import events

from . import marks

__all__ = ["HistoryHandler", "read_log"]

_KINDS: dict[str, type[events.Event]] = {
    kind.__name__: kind
    for kind in (
        *(getattr(events, name) for name in events.__all__ if name != "Event"),
        *(value for value in vars(marks).values() if isinstance(value, type)),
    )
    if issubclass(kind, events.Event)
}
_INSTANTS = ("at", "due", "locked_until")


class HistoryHandler(logging.Handler):
    """Appends the events of a service to a file that `History.from_log` reads.

        handler = HistoryHandler("run-1.jsonl")
        logging.getLogger("inboxkit").addHandler(handler)
        logging.getLogger("inboxkit").setLevel(logging.DEBUG)  # claims are DEBUG records
        note_calls(service)  # for the checks of what is in work at the same time

    Each line is written at once, so a killed process loses the last one at most. A file for each
    process. Payloads are never in it.

    Args:
        path: Of the file; it is made, or added to.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(logging.DEBUG)
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - until `close`
        self._process = f"{socket.gethostname()}:{os.getpid()}"

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's event, if it has one."""
        event = getattr(record, "event", None)
        if not isinstance(event, events.Event):
            return
        try:
            self._file.write(_line(event, record.created, self._process))
            self._file.flush()
        except Exception:  # noqa: BLE001 - as every handler: no row is lost for a full disk
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def read_log(*paths: str | Path) -> tuple[list[datetime], list[events.Event]]:
    """Events of one or several files, in the order of their times, and those times.

    Raises:
        ValueError: A line that is not the last cannot be read; or claims are missing.
    """
    if not paths:
        raise ValueError("History.from_log needs the path of a log at least")
    found: list[tuple[datetime, str, events.Event]] = []
    for path in paths:
        found += _read(Path(path))
    found.sort(key=lambda each: each[0])
    listed = _told_apart(found)
    kinds = {type(event) for event in listed}
    if kinds & {events.Finished, events.Retried} and events.Claimed not in kinds:
        raise ValueError(
            "the log has no claims: set logging.getLogger('inboxkit') to DEBUG, which they are"
        )
    return [at for at, _, _ in found], listed


def _line(event: events.Event, logged: float, process: str) -> str:
    values = {
        field.name: _encode(getattr(event, field.name)) for field in dataclasses.fields(event)
    }
    when = datetime.fromtimestamp(logged, UTC).isoformat()
    record = {"event": type(event).__name__, "logged": when, "process": process, **values}
    return json.dumps(record, ensure_ascii=False) + "\n"


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return {"uuid": str(value)}
        case bytes():
            return {"hex": value.hex()}
        case _:
            return {"other": repr(value)}


def _decode(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _INSTANTS:
        return datetime.fromisoformat(value)
    if name == "delay":
        return timedelta(seconds=value)
    if isinstance(value, dict):
        ((kind, text),) = value.items()
        return UUID(text) if kind == "uuid" else bytes.fromhex(text) if kind == "hex" else text
    return value


def _read(path: Path) -> Iterator[tuple[datetime, str, events.Event]]:
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        try:
            record = json.loads(line)
            kind = _KINDS[record.pop("event")]
            logged = datetime.fromisoformat(record.pop("logged"))
            process = record.pop("process")
            event = kind(**{name: _decode(name, value) for name, value in record.items()})
        except (ValueError, KeyError, TypeError) as error:
            if not line.endswith("\n"):
                return  # its process was killed while it wrote
            raise ValueError(
                f"{path}, line {number}: not an event of HistoryHandler: {error}"
            ) from error
        yield logged, process, event


def _told_apart(found: list[tuple[datetime, str, events.Event]]) -> list[events.Event]:
    """The events; where several processes run a service of one name, each has a name of its own."""
    processes: dict[str, set[str]] = {}
    for _, process, event in found:
        processes.setdefault(event.instance, set()).add(process)
    return [
        dataclasses.replace(event, instance=f"{event.instance} ({process})")
        if event.instance and len(processes[event.instance]) > 1
        else event
        for _, process, event in found
    ]
