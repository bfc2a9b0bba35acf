"""When a cron expression holds next, also where clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inboxkit import DeclarationError
from inboxkit.contrib.cron import next_run

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(expression: str, zone: str, start: str, count: int) -> list[str]:
    found, now = [], at(start)
    for _ in range(count):
        now = next_run(expression, zone, after=now)
        found.append(now.strftime("%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        # Berlin leaves out 2:00 to 3:00 on 31 March 2030, which is 1:00 UTC.
        ("30 2 * * *", BERLIN, "2030-03-29T12:00", ["30 01:30", "31 01:00", "01 00:30"]),
        ("15,45 2 * * *", BERLIN, "2030-03-30T12:00", ["31 01:00", "01 00:15", "01 00:45"]),
        ("0 3 * * *", BERLIN, "2030-03-30T12:00", ["31 01:00", "01 01:00"]),
        ("0 * * * *", BERLIN, "2030-03-30T23:30", ["31 00:00", "31 01:00", "31 02:00"]),
        ("*/30 2 * * *", BERLIN, "2030-03-30T12:00", ["01 00:00", "01 00:30"]),
        # It has 2:00 to 3:00 twice on 27 October 2030, from 0:00 UTC and from 1:00 UTC.
        ("30 2 * * *", BERLIN, "2030-10-26T12:00", ["27 00:30", "28 01:30"]),
        ("30 2 * * *", BERLIN, "2030-10-27T00:45", ["28 01:30"]),
        ("30 2 * * *", BERLIN, "2030-10-27T01:10", ["28 01:30"]),
        ("30 * * * *", BERLIN, "2030-10-26T23:45", ["27 00:30", "27 01:30", "27 02:30"]),
        ("0 3 * * *", BERLIN, "2030-10-27T00:10", ["27 02:00", "28 02:00"]),
        # Lord Howe Island changes by half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2030-10-05T12:00", ["05 15:30", "06 15:15"]),
        ("0 12 * * MON-FRI", "UTC", "2030-01-04T11:00", ["04 12:00", "07 12:00"]),
        ("0 0 L * *", "UTC", "2030-01-04T11:00", ["31 00:00", "28 00:00"]),
    ],
)
def test_runs_over_a_change_of_clocks(
    expression: str, zone: str, start: str, expected: list[str]
) -> None:
    assert runs(expression, zone, start, len(expected)) == expected


INSTANTS = st.datetimes(
    datetime(2029, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    datetime(2031, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
EXPRESSIONS = st.sampled_from(
    [
        "30 2 * * *",
        "0 3 * * *",
        "15,45 1-3 * * *",
        "0 * * * *",
        "*/7 2 * * *",
        "5 0 1 * *",
        "9 2 * * SUN",
    ]
)
ZONES = st.sampled_from(
    [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago", "UTC"]
)


@given(expression=EXPRESSIONS, zone=ZONES, instant=INSTANTS, later=st.timedeltas(timedelta(0)))
def test_the_next_run_is_later_and_nothing_is_between(
    expression: str, zone: str, instant: datetime, later: timedelta
) -> None:
    due = next_run(expression, zone, after=instant)
    assert due > instant
    assert due.tzinfo is UTC
    between = instant + later % (due - instant)
    assert next_run(expression, zone, after=between) == due
    assert next_run(expression, zone, after=between.astimezone(ZoneInfo("Asia/Tokyo"))) == due


@pytest.mark.parametrize(
    ("expression", "zone", "after", "match"),
    [
        ("61 * * * *", "UTC", at("2030-01-01"), "no cron expression"),
        ("* * *", "UTC", at("2030-01-01"), "no cron expression"),
        ("", "UTC", at("2030-01-01"), "no cron expression"),
        (None, "UTC", at("2030-01-01"), "no cron expression"),
        ("0 0 30 2 *", "UTC", at("2030-01-01"), "no cron expression|no time of the next"),
        ("0 0 29 2 MON#5", "Nowhere/At_all", at("2030-01-01"), "no IANA time zone"),
        ("0 0 * * *", "", at("2030-01-01"), "no IANA time zone"),
        ("0 0 * * *", "../etc/passwd", at("2030-01-01"), "no IANA time zone"),
        ("0 0 * * *", timedelta(0), at("2030-01-01"), "no IANA time zone"),
        ("0 0 * * *", "UTC", at("2030-01-01").replace(tzinfo=None), "aware"),
        ("0 0 * * *", "UTC", None, "aware"),
    ],
)
def test_what_makes_no_sense_is_refused(
    expression: str, zone: str, after: datetime, match: str
) -> None:
    with pytest.raises(DeclarationError, match=match):
        next_run(expression, zone, after=after)
