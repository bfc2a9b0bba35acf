"""Leases, delays and settlements hold their bounds for every number that a clock or a row may give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from inboxkit._core.backoff import Backoff
from inboxkit._core.lease import (
    LATEST,
    ExpirySteps,
    add,
    expiry,
    fit,
    hold_end,
    renewed_expiry,
    whole_seconds,
)
from inboxkit._core.outcomes import Ack, Drop, Outcome, Retry
from inboxkit._core.settlement import (
    Destination,
    Ending,
    Failed,
    Policy,
    Returned,
    Spent,
    Undecodable,
    Verb,
    decide,
)

MICROSECOND = timedelta(microseconds=1)

instants = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.just(UTC),
)
leases = st.timedeltas(min_value=MICROSECOND, max_value=timedelta(days=3650)).map(whole_seconds)
precisions = st.integers(0, 6)
steps = st.integers(0, 999)


def unit(precision: int) -> timedelta:
    return timedelta(microseconds=10 ** (6 - precision))


@given(st.timedeltas(min_value=MICROSECOND, max_value=timedelta(days=10**6)))
def test_whole_seconds_round_up_by_less_than_one(lease: timedelta) -> None:
    whole = whole_seconds(lease)
    assert whole.microseconds == 0
    assert lease <= whole < lease + timedelta(seconds=1)
    assert whole >= timedelta(seconds=1)
    assert whole_seconds(whole) == whole


@given(instants, precisions)
def test_fitting_is_idempotent_and_near(instant: datetime, precision: int) -> None:
    fitted = fit(instant, precision)
    assert fit(fitted, precision) == fitted
    assert abs(fitted - instant) * 2 <= unit(precision)


@given(instants, instants, precisions)
def test_fitting_keeps_order(one: datetime, other: datetime, precision: int) -> None:
    first, second = sorted((one, other))
    assert fit(first, precision) <= fit(second, precision)


@given(instants, st.timedeltas())
def test_adding_never_overflows(instant: datetime, delay: timedelta) -> None:
    if delay >= timedelta(0):
        assert min(instant, LATEST) <= add(instant, delay) <= LATEST


@given(instants, leases, steps, precisions)
def test_an_expiry_is_a_lease_away(
    now: datetime, lease: timedelta, step: int, precision: int
) -> None:
    end = expiry(now, lease, steps=ExpirySteps(step), precision=precision)
    plain = add(now, lease)
    over = timedelta(milliseconds=1) if precision == 6 else unit(precision)
    assert plain - over <= end <= plain + over
    assert fit(end, precision) == end


@given(instants.filter(lambda now: now.year < 9000), leases, steps)
def test_a_thousand_expiries_at_one_instant_are_a_thousand_tokens(
    now: datetime, lease: timedelta, step: int
) -> None:
    walk = ExpirySteps(step)
    ends = {expiry(now, lease, steps=walk, precision=6) for _ in range(1000)}
    assert len(ends) == 1000
    assert max(ends) - min(ends) == 999 * MICROSECOND


@given(instants, instants, leases, steps, precisions)
def test_a_later_claim_never_ends_much_earlier(
    one: datetime, other: datetime, lease: timedelta, step: int, precision: int
) -> None:
    first, second = sorted((one, other))
    walk = ExpirySteps(step)
    early = expiry(first, lease, steps=walk, precision=precision)
    late = expiry(second, lease, steps=walk, precision=precision)
    slack = timedelta(milliseconds=1) if precision == 6 else timedelta(0)
    assert late >= early - slack
    if second - first >= slack:
        assert late >= early


@given(
    st.tuples(instants, instants),
    leases,
    st.floats(min_value=-10.0, max_value=1e9),
    steps,
    precisions,
)
def test_a_renewal_never_shortens_a_lease(
    clocks: tuple[datetime, datetime],
    lease: timedelta,
    elapsed: float,
    step: int,
    precision: int,
) -> None:
    claimed, now = clocks
    walk = ExpirySteps(step)
    old = expiry(claimed, lease, steps=walk, precision=precision)
    renewed = renewed_expiry(now, lease, old=old, elapsed=elapsed, steps=walk, precision=precision)
    assert renewed >= fit(add(now, lease), precision)
    # But for the token's step and the column's rounding, which are not carried along.
    step_back = timedelta(microseconds=max(1000, 10 ** (6 - precision)))
    assert renewed >= old - step_back
    carried = add(old, timedelta(seconds=max(elapsed, 0.0))) - step_back
    assert renewed >= fit(carried, precision)
    assert renewed <= LATEST
    assert fit(renewed, precision) == renewed


@given(leases, st.integers(0, 999), st.integers(0, 6))
def test_however_often_renewed_a_lease_grows_by_a_step_at_most(
    lease: timedelta, step: int, precision: int
) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    walk = ExpirySteps(step)
    token = expiry(start, lease, steps=walk, precision=precision)
    for number in range(1, 200):
        now = start + number * lease / 2
        elapsed = (lease / 2).total_seconds()
        token = renewed_expiry(
            now, lease, old=token, elapsed=elapsed, steps=walk, precision=precision
        )
        plain = fit(now + lease, precision)
        unit = timedelta(microseconds=10 ** (6 - precision))
        assert abs(token - plain) <= max(timedelta(milliseconds=1), unit)


@given(st.floats(min_value=0, max_value=1e9), leases)
def test_a_hold_ends_before_its_lease(reading: float, lease: timedelta) -> None:
    end = hold_end(reading, lease)
    assert reading < end < reading + lease.total_seconds()


delays = st.timedeltas(min_value=timedelta(0), max_value=timedelta.max)
shares = st.floats(0, 1)
backoffs = st.one_of(
    st.builds(
        Backoff.exponential,
        first=delays,
        factor=st.floats(1, 1e308),
        maximum=delays,
        jitter=shares,
    ),
    st.builds(Backoff.linear, first=delays, maximum=delays, jitter=shares),
    st.builds(Backoff.fixed, delay=delays, jitter=shares),
    st.just(Backoff.immediate()),
)


@given(backoffs, st.integers(-3, 10**9), st.integers())
def test_backoff_keeps_its_bounds(backoff: Backoff, attempt: int, seed: int) -> None:
    delay = backoff.delay(attempt, Random(seed))
    assert timedelta(0) <= delay <= backoff.maximum
    assert backoff.delay(10**9, Random(seed)) <= backoff.maximum


@given(
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400)),
    st.floats(1, 1e6),
    st.integers(1, 10**9),
)
def test_without_jitter_the_delays_never_shrink(
    first: timedelta, factor: float, attempt: int
) -> None:
    backoff = Backoff.exponential(first=first, factor=factor, jitter=0)
    assert backoff.delay(attempt, Random(0)) <= backoff.delay(attempt + 1, Random(0))


outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Ack()), st.builds(Drop, st.text()), st.builds(Retry, st.none() | delays)
)
endings: st.SearchStrategy[Ending] = st.one_of(
    st.builds(Returned, outcomes), st.just(Failed()), st.just(Undecodable()), st.just(Spent())
)
choices = st.one_of(backoffs, st.sampled_from(["drop", "stop"]))
destinations = st.builds(Destination, group=st.text(min_size=1))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    capped = draw(st.booleans())
    return Policy(
        max_attempts=draw(st.integers(1, 100)) if capped else None,
        destination=draw(destinations) if capped else None,
        on_error=draw(choices),  # type: ignore[arg-type]
        on_decode_error=draw(choices),  # type: ignore[arg-type]
        has_retry_after=draw(st.booleans()),
        has_attempt=capped or draw(st.booleans()),
        is_fifo=draw(st.booleans()),
    )


@given(endings, st.integers(1, 10**9), policies(), st.integers())
def test_every_ending_is_decided(ending: Ending, attempt: int, policy: Policy, seed: int) -> None:
    if isinstance(ending, Spent) and policy.max_attempts is None:
        return  # only a cap makes a row spent
    settlement = decide(ending, attempt=attempt, policy=policy, random=Random(seed))
    if settlement is None:
        choice = policy.on_error if isinstance(ending, Failed) else policy.on_decode_error
        assert choice == "stop"
        return
    assert settlement.delay >= timedelta(0)
    if settlement.verb is Verb.MOVE:
        assert settlement.destination is not None
        assert attempt >= (policy.max_attempts or 0) or isinstance(ending, Spent)
    if settlement.verb is Verb.POSTPONE:
        assert policy.has_retry_after
    if settlement.verb is Verb.HOLD:
        assert isinstance(ending, Failed | Undecodable)
        assert settlement.delay > timedelta(0)
    finished = isinstance(ending, Returned) and isinstance(ending.outcome, Ack | Drop)
    assert not finished or settlement.verb is Verb.FINISH
