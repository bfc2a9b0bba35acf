"""How a delivery ends: one table from what happened to the one write that ends it.

Nothing here waits, draws a clock or knows SQL: the runtime says what happened, this says what to
write, the claim form writes it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Literal, TypeAlias, assert_never

from .backoff import Backoff
from .group_shape import GroupShape
from .outcomes import Ack, Drop, Outcome, Retry

__all__ = [
    "Destination",
    "Ending",
    "Failed",
    "FailurePolicy",
    "Policy",
    "Returned",
    "Settlement",
    "Spent",
    "Undecodable",
    "Verb",
    "decide",
]

FailurePolicy: TypeAlias = Backoff | Literal["drop", "stop"]


class Verb(enum.Enum):
    """What a settlement writes."""

    FINISH = "finish"
    """Delete the row, or stamp it where finished rows stay."""
    GIVE_BACK = "give back"
    """Claimable at once."""
    POSTPONE = "postpone"
    """Due again after a delay, by `retry_after`."""
    HOLD = "hold"
    """Leased by nobody for a delay: keeps the row's place, and its group's."""
    MOVE = "move"
    """To the dead letter."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where dead letters go."""

    group: str | None = None
    """A group of the same table; or else"""
    table: str | None = None
    """a table with the same columns, and"""
    schema: str | None = None
    """its schema (None: what the search path finds)."""
    shape: GroupShape | None = None
    """In place of these: a group of the same table for each group."""

    def of(self, group: str | None) -> Destination:
        """Where the dead letters of one group go."""
        if self.shape is None or group is None:
            return self
        return Destination(group=self.shape.of(group))

    @property
    def name(self) -> str:
        """As a person would write it."""
        if self.shape is not None:
            return str(self.shape)
        if self.group is not None:
            return self.group
        return f"{self.schema}.{self.table}" if self.schema else str(self.table)


@dataclass(frozen=True, slots=True)
class Settlement:
    """One write that ends a delivery."""

    verb: Verb
    delay: timedelta = timedelta(0)
    """POSTPONE, HOLD: from the settlement's own reading of the clock."""
    destination: Destination | None = None
    """MOVE: where to."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a subscription was declared with, and what its table can do."""

    max_attempts: int | None = None
    destination: Destination | None = None
    on_error: FailurePolicy = Backoff.exponential()
    on_decode_error: FailurePolicy = Backoff.exponential()
    has_retry_after: bool = False
    has_attempt: bool = False
    is_fifo: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler ended with an outcome."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, timed out, returned what is no outcome, or cancelled itself."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The payload (or a value that the handler needs) cannot be read."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The claim found the row past its cap."""


Ending: TypeAlias = Returned | Failed | Undecodable | Spent

_FINISH = Settlement(Verb.FINISH)
_GIVE_BACK = Settlement(Verb.GIVE_BACK)
_SHORTEST_BACKOFF = timedelta(milliseconds=10)
"""A row that fails at once and for ever must not spin: not even under `Backoff.immediate()`."""


def decide(
    ending: Ending, *, attempt: int, policy: Policy, random: Random, group: str | None = None
) -> Settlement | None:
    """Return the write that ends a delivery; None where the service is to stop and release the row.

    Args:
        ending: What happened.
        attempt: The number that the handler read, from 1.
        policy: The subscription's.
        random: The service's seeded source, for jitter.
        group: The row's, where the dead letter's name is made of it.
    """
    settlement = _decide(ending, attempt, policy, random)
    if settlement is None or settlement.destination is None:
        return settlement
    return replace(settlement, destination=settlement.destination.of(group))


def _decide(ending: Ending, attempt: int, policy: Policy, random: Random) -> Settlement | None:
    match ending:
        case Spent():
            return _move(policy)
        case Returned(outcome):
            return _outcome(outcome, attempt, policy)
        case Failed():
            return _failure(policy.on_error, attempt, policy, random)
        case Undecodable():
            return _failure(policy.on_decode_error, attempt, policy, random)
        case _:
            assert_never(ending)


def _outcome(outcome: Outcome, attempt: int, policy: Policy) -> Settlement:
    match outcome:
        case Ack() | Drop():
            return _FINISH
        case Retry(delay):
            return _move(policy) if _is_last(attempt, policy) else _retry(delay, policy)
        case _:
            assert_never(outcome)


def _is_last(attempt: int, policy: Policy) -> bool:
    return policy.max_attempts is not None and attempt >= policy.max_attempts


def _move(policy: Policy) -> Settlement:
    return Settlement(Verb.MOVE, destination=policy.destination)


def _retry(delay: timedelta | None, policy: Policy) -> Settlement:
    if delay is None or not policy.has_retry_after:
        return _GIVE_BACK
    return Settlement(Verb.POSTPONE, delay)


def _failure(
    choice: FailurePolicy, attempt: int, policy: Policy, random: Random
) -> Settlement | None:
    if choice == "drop":
        return _FINISH
    if choice == "stop":
        return None
    if _is_last(attempt, policy):
        return _move(policy)
    delay = max(choice.delay(attempt if policy.has_attempt else 1, random), _SHORTEST_BACKOFF)
    if policy.has_retry_after and not policy.is_fifo:
        return Settlement(Verb.POSTPONE, delay)
    # Postponing would put a FIFO head behind its group, and without the column there is nothing to
    # write: the row is leased by nobody instead, so that it neither loses its place nor spins.
    return Settlement(Verb.HOLD, delay)
