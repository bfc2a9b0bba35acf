from __future__ import annotations

from datetime import timedelta

import pytest

from inboxkit._core.outcomes import Ack, Drop, Retry, ack, drop, retry, retry_after


def test_outcomes_are_values() -> None:
    assert ack() == Ack()
    assert retry() == Retry(None)
    assert retry_after(timedelta(seconds=3)) == Retry(timedelta(seconds=3))
    assert drop("no such address") == Drop("no such address")
    assert drop() == Drop("")
    assert len({ack(), ack(), retry(), drop()}) == 3


def test_a_negative_delay_is_due_at_once() -> None:
    assert retry_after(timedelta(seconds=-1)) == Retry(timedelta(0))


def test_a_delay_is_a_timedelta() -> None:
    with pytest.raises(TypeError, match=r"retry_after\(timedelta\(seconds=…\)\)"):
        retry_after(30)  # type: ignore[arg-type]


def test_outcomes_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        drop("a").reason = "b"  # type: ignore[misc]
