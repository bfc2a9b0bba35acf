"""Counts from outside what has become of the jobs: by SQL over the tables, and by nothing that inboxkit says."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from chaos_jobs import ONCE, SINGLE
from chaos_sql import LOST, Outside
from chaos_workers import Kill

__all__ = [
    "Count",
    "count",
    "done",
    "finished_after",
    "left",
    "recoveries",
    "summary",
    "wait_until",
]

_TRANSACTIONAL = f"queue IN ('{ONCE}', 'ordered')"


@dataclass(frozen=True)
class Count:
    """What the tables say."""

    published: int
    left: int
    """Rows that are still in the queues' tables."""
    lost: int
    """Published jobs without an effect."""
    unknown: int
    """Effects of no published job."""
    doubled: int
    """Jobs of transactional handlers with more than one effect."""
    repeated: int
    """Jobs of plain handlers that were begun more than once."""
    same_attempt: int
    """Jobs of plain handlers that were begun twice with the same number of the attempt."""
    unordered: int
    """Effects of transactional handlers on FIFO groups that came before, or with, an earlier one's."""
    overtaken: int
    """The same of plain handlers, whose effects may be repeated but not out of order."""
    most_attempts: int

    def check(self, total: int, *, counts_crashes: bool) -> None:
        """Raise AssertionError unless nothing was lost, doubled or overtaken.

        Args:
            total: How many jobs were to be published.
            counts_crashes: Whether the claim form counts the attempts of crashed workers.
        """
        zero = ("left", "lost", "unknown", "doubled", "unordered", "overtaken")
        wrong = [name for name in zero if getattr(self, name)]
        if counts_crashes and self.same_attempt:
            wrong.append("same_attempt")
        assert not wrong, f"{', '.join(wrong)}: {asdict(self)}"
        assert self.published == total, asdict(self)


def count(outside: Outside) -> Count:
    """Count; call it when nothing runs any more."""
    value = outside.value
    return Count(
        published=value("SELECT count(*) FROM published"),
        left=left(outside),
        lost=value(
            "SELECT count(*) FROM published p WHERE NOT EXISTS "
            "(SELECT 1 FROM effects e WHERE e.number = p.number)"
        ),
        unknown=value(
            "SELECT count(*) FROM effects e WHERE NOT EXISTS "
            "(SELECT 1 FROM published p WHERE p.number = e.number)"
        ),
        doubled=_groups(outside, f"effects WHERE {_TRANSACTIONAL}", "number"),
        repeated=_groups(outside, "begun", "number"),
        same_attempt=_groups(outside, "begun", "number, attempt"),
        unordered=_out_of_order(outside, "queue = 'ordered'", "<="),
        overtaken=_out_of_order(outside, f"queue = '{SINGLE}'", "<"),
        most_attempts=value("SELECT coalesce(max(attempt), 0) FROM effects"),
    )


def _groups(outside: Outside, source: str, key: str) -> int:
    found: int = outside.value(
        f"SELECT count(*) FROM (SELECT 1 FROM {source} GROUP BY {key} HAVING count(*) > 1) g"
    )
    return found


def _out_of_order(outside: Outside, where: str, comparison: str) -> int:
    found: int = outside.value(
        f"SELECT count(*) FROM (SELECT sequence, lag(sequence) OVER (PARTITION BY target ORDER BY id) AS earlier "
        f"FROM effects WHERE {where}) o WHERE sequence {comparison} earlier"
    )
    return found


def left(outside: Outside) -> int:
    """Rows in the queues' tables."""
    total = 0
    for table in ("jobs", "ordered"):
        if _exists(outside, table):
            total += outside.value(f"SELECT count(*) FROM {table}")
    return total


def _exists(outside: Outside, table: str) -> bool:
    if outside.dialect == "sqlite":
        return bool(outside.value("SELECT count(*) FROM sqlite_master WHERE name = ?", table))
    here = "current_schema()" if outside.dialect == "postgres" else "database()"
    text = f"SELECT count(*) FROM information_schema.tables WHERE table_schema = {here} AND table_name = ?"
    return bool(outside.value(text, table))


def done(outside: Outside) -> int:
    """Jobs with an effect."""
    found: int = outside.value("SELECT count(DISTINCT number) FROM effects")
    return found


def wait_until(seen: object, seconds: float, what: str) -> None:
    """Look each 20 ms until `seen()` is true; a server that is away is no answer."""
    assert callable(seen)
    deadline = time.monotonic() + seconds
    while True:
        try:
            if seen():
                return
        except LOST:
            pass
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def finished_after(outside: Outside, moments: Sequence[float]) -> list[float]:
    """Seconds from each of these moments to the next effect."""
    found = []
    for moment in moments:
        at = outside.value("SELECT min(at) FROM effects WHERE at > ?", moment)
        assert at is not None, "nothing was done after the last outage"
        found.append(float(at) - moment)
    return found


def recoveries(outside: Outside, kills: Iterable[Kill]) -> list[float]:
    """Seconds from each kill of a worker that had begun plain jobs to the last of their effects.

    A job counts whose effect the killed worker had not committed.
    """
    text = (
        "SELECT max(f.first) FROM (SELECT b.number, (SELECT min(e.at) FROM effects e WHERE e.number = b.number) "
        "AS first FROM begun b WHERE b.worker = ? AND NOT EXISTS (SELECT 1 FROM effects e WHERE "
        "e.number = b.number AND e.worker = b.worker)) f"
    )
    found = [(kill, outside.value(text, kill.worker)) for kill in kills]
    # Earlier: another one had it, since this one had lost it before it was killed.
    return [float(at) - kill.at for kill, at in found if at is not None and at > kill.at]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median and maximum."""
    if not seconds:
        return {}
    return {"median": round(statistics.median(seconds), 3), "most": round(max(seconds), 3)}
