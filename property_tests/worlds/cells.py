"""Where examples run: a database and a backend; and how a run is judged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from hypothesis import given, settings
from hypothesis import strategies as st

from inboxkit_testing.backends import BackendName

from .history import Broken, History
from .machine import play
from .oracle import Rule
from .schedule import Schedule
from .trail import SCHEMA, read_trail

__all__ = ["Cell", "Judge", "open_cell"]

Judge = Callable[[Schedule], History]


@dataclass(frozen=True)
class Cell:
    """One database, kept over all examples, and a backend."""

    name: str
    url: str
    backend: BackendName
    share: int
    """Of a property's examples, one in so many run here."""
    connection: sqlite3.Connection | psycopg.Connection[Any]
    """The test's own: it empties the tables and reads the evidence."""

    @property
    def examples(self) -> int:
        """How many examples a property runs here."""
        profile = settings.get_current_profile_name()
        most = settings().max_examples
        if profile != "nightly" and isinstance(self.connection, psycopg.Connection):
            most = most * 3 // 10
        return max(most // self.share, 1)

    def check(self, schedules: st.SearchStrategy[Schedule], *rules: Rule) -> None:
        """Run examples of these schedules, and hold each run against the rules."""

        @settings(max_examples=self.examples)
        @given(schedules)
        def holds(schedule: Schedule) -> None:
            self.judge(schedule, *rules)

        holds()

    def judge(self, schedule: Schedule, *rules: Rule) -> History:
        """Run one schedule, and hold it against the rules.

        Raises:
            Broken: With the schedule, the timeline and the changes of the rows.
        """
        self._empty()
        history, timeline = play(schedule, self.url, self.backend)
        history.changes = read_trail(self.connection)
        try:
            for rule in rules:
                rule(history)
        except Broken as broken:
            broken.add_note(f"on {self.name}, by the schedule\n{schedule}")
            broken.add_note("\n".join(("timeline", *timeline.lines(), *history.notes)))
            broken.add_note("\n".join(("changes", *map(str, history.changes))))
            broken.add_note("\n".join(("calls", *map(str, history.calls))))
            raise
        return history

    def _empty(self) -> None:
        if isinstance(self.connection, sqlite3.Connection):
            self.connection.execute("DELETE FROM jobs")
            self.connection.execute("DELETE FROM trail")
            self.connection.execute("DELETE FROM sqlite_sequence")
        else:
            self.connection.execute("TRUNCATE jobs, trail RESTART IDENTITY")


def open_cell(name: str, backend: BackendName, share: int, place: Path | str) -> Cell:
    """A cell with an empty database.

    Args:
        name: ``"inloop"``, ``"sqlite"`` or ``"postgres"``.
        backend: The loop.
        share: See `Cell`.
        place: A folder; for Postgres the URL of an empty database.
    """
    connection: sqlite3.Connection | psycopg.Connection[Any]
    if name == "postgres":
        url = str(place)
        connection = psycopg.connect(url, autocommit=True)
    else:
        file = Path(place) / "world.db"
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        url = f"{'sqlite+inloop' if name == 'inloop' else 'sqlite+thread'}:///{file}"
    for statement in SCHEMA["postgres" if name == "postgres" else "sqlite"]:
        connection.execute(statement)
    return Cell(f"{name}-{backend}", url, backend, share, connection)
