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


def queues_of(service: Service) -> dict[str, QueueFacts]:
    """The queues that the service serves, by name."""
    return {
        one.queue.name: QueueFacts(
            table=one.spec.name,
            group=one.queue.only_group,
            is_fifo=one.spec.fifo,
            has_keys=one.workers_by_key is not None,
            cap=one.max_attempts,
        )
        for one in service._included
    }
