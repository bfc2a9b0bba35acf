"""How much is done for each row that is inserted: what a description says is found once."""

from __future__ import annotations

import cProfile
import pstats
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from inboxkit import Inbox, role
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.insert import insert_statements
from inboxkit.errors import EncodeError
from inboxkit.table import new_row

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Job(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    priority: int = role.priority(default=1)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Message:
    n: int


def calls(count: int) -> int:
    """Python's and C's function calls from messages to statements."""
    profile = cProfile.Profile()
    profile.enable()
    rows = [new_row(Job.of(Message(n), name="a")) for n in range(count)]
    made = insert_statements(
        get_dialect("postgres"), Job.spec, None, rows, on_conflict="error", now=NOW
    )
    texts = [one.statement.text for one in made]
    profile.disable()
    assert len(texts) == 1
    found: Any = pstats.Stats(profile)
    return int(found.total_calls)


def test_a_further_row_costs_few_calls() -> None:
    calls(1)  # what is made once
    assert (calls(1100) - calls(100)) / 1000 < 50


SPEC = InboxSpec(
    "jobs",
    id=Column("id", type=int),
    group=Column("name"),
    priority=Column("priority", default=1),
    retry_after=Column("due", default=None),
)


def values(rows: list[Any], *, now: datetime | None = NOW) -> list[list[Any]]:
    made = insert_statements(
        get_dialect("postgres"), SPEC, None, rows, on_conflict="error", now=now
    )
    return [
        [dict(zip([c.name for c in one.columns], row, strict=True)) for row in one.rows]
        for one in made
    ]


@pytest.mark.parametrize("now", [NOW, None])
def test_rows_are_encoded_alike_whether_or_not_they_have_the_same_columns(
    now: datetime | None,
) -> None:
    """Alike ones go column by column, others row by row."""
    later = datetime(2031, 1, 1, tzinfo=UTC)
    rows = [SPEC.of(id=n, name="a", **({"due": later} if n % 2 else {})) for n in range(6)]
    (together,) = values(rows, now=now)
    alone = [line for row in rows for lines in values([row], now=now) for line in lines]
    assert together == alone
    assert [line["due"] for line in together] == [now, later] * 3


def test_the_first_row_that_does_not_fit_is_told() -> None:
    rows = [SPEC.of(id=n, name="a") for n in range(3)]
    wrong = [SPEC.of(id=7, name="b", priority="x"), SPEC.of(id="y", name="c")]
    with pytest.raises(EncodeError, match="priority") as raised:
        values([*rows, *wrong])
    assert (raised.value.queue, raised.value.id) == ("b", 7)
