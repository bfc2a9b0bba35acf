"""What a service declares of its queues, for those who judge its runs."""

from __future__ import annotations

from dataclasses import dataclass

from inboxkit import Service

__all__ = ["QueueFacts", "queues_of"]


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue."""

    table: str
    group: str | None
    """None: the whole table, or each of its groups."""
    is_fifo: bool
    has_keys: bool
    cap: int | None
    keeps_back_off: bool = True
    """Whether a row's back-off stands in the table; False: it is only the instance that rests."""


def queues_of(service: Service) -> dict[str, QueueFacts]:
    """The queues that the service serves, by name."""
    return {
        one.queue.name: QueueFacts(
            table=one.spec.name,
            group=one.queue.only_group,
            is_fifo=one.spec.fifo,
            has_keys=one.workers_by_key is not None,
            cap=one.max_attempts,
            keeps_back_off=one.spec.form == "lease"
            or (one.spec.retry_after is not None and not one.spec.fifo),
        )
        for one in service._included
    }
