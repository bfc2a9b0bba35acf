"""Time text of SQLite sorts as time, and comes back as the instant that it was."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inboxkit._core.spec import Column, Role
from inboxkit._sql.convert import MisfitError
from inboxkit._sql.sqlite.values import converter, instant

offsets = st.timedeltas(
    min_value=timedelta(hours=-23, minutes=-59), max_value=timedelta(hours=23, minutes=59)
)
zones = offsets.map(timezone)
# A day from either end: an instant of another zone is a day away from its UTC date at most.
instants = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=zones | st.just(UTC),
)
LEASE = converter(Role.LOCKED_UNTIL, Column("locked_until"), None)


def read(text: object) -> datetime:
    assert LEASE.decode is not None
    found = LEASE.decode(text)
    assert isinstance(found, datetime)
    return found


@given(instants, instants)
def test_text_sorts_as_time(one: datetime, other: datetime) -> None:
    texts = instant(one), instant(other)
    assert (texts[0] < texts[1]) == (one < other)
    assert (texts[0] == texts[1]) == (one == other)


@given(instants)
def test_text_comes_back_as_the_same_instant(at: datetime) -> None:
    text = instant(at)
    assert read(text) == at
    assert read(text).utcoffset() == timedelta(0)
    assert instant(read(text)) == text


@given(instants, st.integers(1, 10**6))
def test_a_microsecond_later_sorts_later(at: datetime, microseconds: int) -> None:
    assert instant(at) < instant(at + timedelta(microseconds=microseconds))


@given(st.lists(instants, max_size=8))
def test_the_database_sorts_it_as_time(times: list[datetime]) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (at TEXT)")
    database.executemany("INSERT INTO t VALUES (?)", [(instant(at),) for at in times])
    stored = [read(text) for (text,) in database.execute("SELECT at FROM t ORDER BY at")]
    assert stored == sorted(times)
    database.close()


@given(instants, instants, st.integers(3, 6))
def test_text_of_fewer_digits_sorts_as_time(one: datetime, other: datetime, digits: int) -> None:
    """The guides' own default writes three digits; beside six they sort right."""
    short = instant(one)[: 20 + digits] + "+00:00"
    if read(short) < other:
        assert short < instant(other)
    if read(short) > other:
        assert short > instant(other)


layouts = st.sampled_from(
    [
        "{0:%Y-%m-%d %H:%M:%S}.000000+00:00",
        "{0:%Y-%m-%dT%H:%M:%S}+00:00",
        "{0:%Y-%m-%dT%H:%M:%S}.5+00:00",
        "{0:%Y-%m-%dT%H:%M:%S}.000000Z",
        "{0:%Y-%m-%dT%H:%M:%S}.000000+01:00",
        "{0:%Y-%m-%dT%H:%M:%S}.0000000+00:00",
    ]
)


@given(instants.filter(lambda at: at.year >= 1000), layouts)
def test_text_that_sorts_wrong_is_refused(at: datetime, layout: str) -> None:
    with pytest.raises(MisfitError):
        read(layout.format(at))


@given(st.one_of(st.integers(), st.floats(), st.binary(), st.text(max_size=40)))
def test_nothing_else_is_taken_for_a_time(value: object) -> None:
    with pytest.raises(MisfitError):
        read(value)
