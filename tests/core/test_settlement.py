from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from inboxkit._core.backoff import Backoff
from inboxkit._core.outcomes import ack, drop, retry, retry_after
from inboxkit._core.settlement import (
    Destination,
    Ending,
    Failed,
    Policy,
    Returned,
    Settlement,
    Spent,
    Undecodable,
    Verb,
    decide,
)

SECOND = timedelta(seconds=1)
DEAD = Destination(group="dead")
PLAIN = Policy(
    on_error=Backoff.fixed(5 * SECOND),
    on_decode_error=Backoff.fixed(9 * SECOND),
    has_retry_after=True,
    has_attempt=True,
)
CAPPED = replace(PLAIN, max_attempts=3, destination=DEAD)


def settle(ending: Ending, policy: Policy = PLAIN, attempt: int = 1) -> Settlement | None:
    return decide(ending, attempt=attempt, policy=policy, random=Random(0))


@pytest.mark.parametrize("attempt", [1, 3, 99])
@pytest.mark.parametrize("outcome", [ack(), drop("x")])
@pytest.mark.parametrize("policy", [PLAIN, CAPPED])
def test_ack_and_drop_finish_whatever_the_cap(
    outcome: object, policy: Policy, attempt: int
) -> None:
    assert settle(Returned(outcome), policy, attempt) == Settlement(Verb.FINISH)  # type: ignore[arg-type]


def test_retry_gives_back_at_once() -> None:
    assert settle(Returned(retry())) == Settlement(Verb.GIVE_BACK)


def test_retry_after_postpones() -> None:
    assert settle(Returned(retry_after(SECOND))) == Settlement(Verb.POSTPONE, SECOND)


def test_retry_after_without_the_column_gives_back_at_once() -> None:
    policy = replace(PLAIN, has_retry_after=False)
    assert settle(Returned(retry_after(SECOND)), policy) == Settlement(Verb.GIVE_BACK)


@pytest.mark.parametrize(
    "ending", [Returned(retry()), Returned(retry_after(SECOND)), Failed(), Undecodable()]
)
def test_the_last_attempt_moves_instead(ending: Ending) -> None:
    moved = Settlement(Verb.MOVE, destination=DEAD)
    assert settle(ending, CAPPED, attempt=2) != moved
    assert settle(ending, CAPPED, attempt=3) == moved
    assert settle(ending, CAPPED, attempt=4) == moved


def test_a_spent_row_moves() -> None:
    assert settle(Spent(), CAPPED, attempt=4) == Settlement(Verb.MOVE, destination=DEAD)


def test_a_failure_postpones_by_its_own_policy() -> None:
    assert settle(Failed()) == Settlement(Verb.POSTPONE, 5 * SECOND)
    assert settle(Undecodable()) == Settlement(Verb.POSTPONE, 9 * SECOND)


@pytest.mark.parametrize("change", [{"is_fifo": True}, {"has_retry_after": False}])
def test_a_failure_that_must_keep_its_place_is_held(change: dict[str, bool]) -> None:
    policy = replace(PLAIN, **change)  # type: ignore[arg-type]
    assert settle(Failed(), policy) == Settlement(Verb.HOLD, 5 * SECOND)


def test_a_held_row_never_spins() -> None:
    policy = replace(PLAIN, is_fifo=True, on_error=Backoff.immediate())
    held = settle(Failed(), policy)
    assert held is not None
    assert held.verb is Verb.HOLD
    assert held.delay > timedelta(0)


def test_an_explicit_retry_after_on_a_fifo_table_is_postponed() -> None:
    policy = replace(PLAIN, is_fifo=True)
    assert settle(Returned(retry_after(SECOND)), policy) == Settlement(Verb.POSTPONE, SECOND)


def test_drop_and_stop_instead_of_a_backoff() -> None:
    policy = replace(CAPPED, on_error="drop", on_decode_error="stop")
    for attempt in (1, 3, 9):
        assert settle(Failed(), policy, attempt) == Settlement(Verb.FINISH)
        assert settle(Undecodable(), policy, attempt) is None


def test_without_attempts_the_backoff_is_its_first_delay() -> None:
    policy = replace(PLAIN, has_attempt=False, on_error=Backoff.linear(SECOND))
    assert settle(Failed(), policy, attempt=7) == Settlement(Verb.POSTPONE, SECOND)
    assert settle(Failed(), replace(policy, has_attempt=True), attempt=7) == Settlement(
        Verb.POSTPONE, 7 * SECOND
    )


def test_destinations_have_names() -> None:
    assert Destination(group="emails.dead").name == "emails.dead"
    assert Destination(table="dead_jobs").name == "dead_jobs"
    assert Destination(table="dead_jobs", schema="app").name == "app.dead_jobs"


@pytest.mark.parametrize("is_fifo", [False, True])
@pytest.mark.parametrize("has_retry_after", [False, True])
def test_a_failing_row_never_spins(is_fifo: bool, has_retry_after: bool) -> None:
    policy = replace(
        PLAIN, is_fifo=is_fifo, has_retry_after=has_retry_after, on_error=Backoff.immediate()
    )
    settlement = decide(Failed(), attempt=1, policy=policy, random=Random(1))
    assert settlement is not None
    assert settlement.delay >= timedelta(milliseconds=1)
