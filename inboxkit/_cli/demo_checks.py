"""What must be true at the end of the demo: read from the file, by the plain sqlite3 module, and from events."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from inboxkit import events
from inboxkit_testing import Timeline
from inboxkit_testing.timeline import Note

from .demo_services import MESSAGES, Story

__all__ = ["Check", "check_real_time", "check_virtual_time"]

EventT = TypeVar("EventT", bound=events.Event)

HALF_A_LEASE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the result."""

    text: str
    ok: bool
    found: str
    """What was found, where it is wrong."""


class _File:
    """The database file, seen from outside."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def count(self, query: str) -> int:
        return int(self.rows(query)[0][0])


def check_real_time(path: Path, timeline: Timeline) -> list[Check]:
    """What twenty messages to each service led to."""
    with closing(sqlite3.connect(path)) as connection:
        file = _File(connection)
        return [
            _same(
                "reports: all rendered, none left",
                file.count("SELECT count(*) FROM report_jobs"),
                0,
            ),
            _same(
                "mailer: all delivered, dropped or reviewed, none left",
                file.count("SELECT count(*) FROM mail_jobs"),
                0,
            ),
            _same(
                "accounts: changes the CRM refused three times are parked",
                file.rows("SELECT DISTINCT target, attempt, locked_until FROM crm_jobs"),
                [("crm.parked", 4, None)],
            ),
            _same(
                "shop: an order and its two mails each, the first of them sent",
                file.rows(
                    "SELECT (SELECT count(*) FROM orders), count(*), count(processed_at) FROM email_jobs"
                ),
                [(MESSAGES, 2 * MESSAGES, MESSAGES)],
            ),
            _same("no lease was lost", len(timeline.of(events.Lost)), 0),
        ]


def check_virtual_time(path: Path, timeline: Timeline, story: Story) -> list[Check]:
    """What three days led to."""
    with closing(sqlite3.connect(path)) as connection:
        file = _File(connection)
        return [
            *_check_reports(file, timeline),
            *_check_mailer(file, timeline),
            *_check_accounts(file, timeline, story),
            *_check_shop(file, story),
        ]


def _check_reports(file: _File, timeline: Timeline) -> Iterator[Check]:
    claims = _events(timeline, events.Claimed, "reports")
    renewals = _events(timeline, events.Renewed, "reports")
    crash = _events(timeline, Note, "reports")[0].at
    first, second = ([claim.at for claim in claims] + [None, None])[:2]
    gaps = _gaps([at for at in (first, *[r.at for r in renewals if r.at <= crash]) if at])
    gaps += _gaps([at for at in (second, *[r.at for r in renewals if r.at > crash]) if at])
    yield Check(
        "reports: the lease was renewed each half minute of a five-minute render",
        len(gaps) >= 12 and set(gaps) == {HALF_A_LEASE} and not timeline.of(events.Lost),
        f"{len(renewals)} renewals, {len(timeline.of(events.Lost))} leases lost",
    )
    until = [r.locked_until for r in renewals if r.at <= crash]
    yield Check(
        "reports: after the crash the row came back when its lease ended, as attempt 2",
        second is not None and bool(until) and second >= until[-1] and claims[1].attempt == 2,
        f"claimed {[(str(claim.at), claim.attempt) for claim in claims]}",
    )
    finished = _events(timeline, events.Finished, "reports")
    yield Check(
        "reports: rendered to the end and settled once; the table is empty",
        len(finished) == 1 and file.count("SELECT count(*) FROM report_jobs") == 0,
        f"{len(finished)} settled, {file.count('SELECT count(*) FROM report_jobs')} rows left",
    )


def _check_mailer(file: _File, timeline: Timeline) -> Iterator[Check]:
    ends = [event.outcome for event in _events(timeline, events.Finished, "emails", of="mailer")]
    yield _same(
        "mailer: one mail delivered, one dropped for its address", sorted(ends), ["ack", "drop"]
    )
    moved = [
        (event.id, event.attempt) for event in _events(timeline, events.DeadLettered, "emails")
    ]
    reviewed = [(e.id, e.attempt) for e in _events(timeline, events.Finished, "emails.dead")]
    yield Check(
        "mailer: the one that failed five times went to the dead letter and was reviewed",
        len(moved) == 1 and reviewed == [(moved[0][0], 6)],
        f"moved {moved}, reviewed {reviewed}",
    )
    left = file.rows("SELECT name, attempt FROM mail_jobs")
    yield _same("mailer: no mail is left", left, [])


def _check_accounts(file: _File, timeline: Timeline, story: Story) -> Iterator[Check]:
    order = [(event.id, event.attempt) for event in _events(timeline, events.Claimed, "crm")]
    ids = sorted({id for id, _ in order})
    yield _same(
        "accounts: the second change went out after the third refusal of the first",
        [(ids.index(id) + 1, attempt) for id, attempt in order],
        [(1, 1), (1, 2), (1, 3), (2, 1)],
    )
    yield _same(
        "accounts: the refused change is parked, counted and free",
        file.rows("SELECT target, attempt, locked_until FROM crm_jobs"),
        [("crm.parked", 4, None)],
    )
    finished = [event.id for event in _events(timeline, events.Finished, "postings")]
    in_order = all(
        ids == sorted(ids)
        for ids in (
            finished_of(finished, n, len(story.accounts)) for n in range(len(story.accounts))
        )
    )
    yield Check(
        "accounts: each account's postings were posted in order, and none is left",
        in_order
        and len(finished) == story.postings
        and file.count("SELECT count(*) FROM ledger_jobs") == 0,
        f"posted {finished}",
    )


def finished_of(ids: list[int], number: int, accounts: int) -> list[int]:
    """Postings were published in turns, so ids tell the accounts apart."""
    return [id for id in ids if (id - min(ids, default=0)) % accounts == number]


def _check_shop(file: _File, story: Story) -> Iterator[Check]:
    orders = tuple(id for (id,) in file.rows("SELECT id FROM orders ORDER BY id"))
    yield _same("shop: every order is placed", orders, story.orders)
    mails = file.rows("SELECT priority, retry_after, processed_at FROM email_jobs ORDER BY id")
    unsent = sum(processed is None for _, _, processed in mails)
    yield Check(
        "shop: two mails for every order, all sent and kept",
        len(mails) == 2 * len(orders) and not unsent,
        f"{len(mails)} mails, {unsent} unsent",
    )
    reminders = [(_instant(due), _instant(sent)) for priority, due, sent in mails if priority]
    late = [sent - due for due, sent in reminders if sent is not None and due is not None]
    yield Check(
        "shop: each reminder was sent three days after its order, no sooner",
        len(late) == len(orders)
        and all(timedelta(0) <= wait <= timedelta(seconds=1) for wait in late)
        and all(due - story.start >= timedelta(days=3) for due, _ in reminders if due is not None),
        f"sent {[str(wait) for wait in late]} after the due time",
    )


def _events(
    timeline: Timeline, kind: type[EventT], queue: str, *, of: str | None = None
) -> list[EventT]:
    """The events of one kind and queue; `of`: of one service, where two have a queue of that name."""
    return [
        event
        for event in timeline
        if isinstance(event, kind) and event.queue == queue and of in (None, event.instance)
    ]


def _gaps(instants: list[datetime]) -> list[timedelta]:
    return [later - before for before, later in itertools.pairwise(instants)]


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _same(text: str, found: Any, expected: Any) -> Check:
    return Check(text, found == expected, f"found {found!r}, expected {expected!r}")
