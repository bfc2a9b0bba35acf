"""What is to happen in one example: rows, what their handlers answer, steps, and the order of statements."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = [
    "Act",
    "Advance",
    "Answer",
    "Crash",
    "CrashAt",
    "Fault",
    "Job",
    "Publish",
    "Restart",
    "Schedule",
    "Shape",
    "Step",
    "Stop",
]

Shape: TypeAlias = Literal["plain", "kept", "fifo", "bare fifo", "keyed"]
"""plain: groups, priorities, due times, attempts. kept: the same, finished rows stay. fifo: the same,
one row of a group at a time. bare fifo: group and attempt alone. keyed: a partition key in place of
the group."""

Answer: TypeAlias = Literal["ack", "none", "drop", "retry", "retry after", "raise", "settle ack"]
"""none: the handler returns nothing. settle ack: it raises `Settle(ack())`."""


@dataclass(frozen=True, slots=True)
class Act:
    """One run of a handler."""

    answer: Answer = "ack"
    seconds: float = 0.0
    """How long it takes."""
    delay: float = 0.0
    """retry after: for how long."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row; `acts` are what its handler does, run by run. When they are used up, it acks."""

    acts: tuple[Act, ...] = ()
    group: str = "a"
    priority: int | None = 0
    due_in: float | None = None
    """Seconds from its insertion until it is due; None: the column stays NULL."""
    key: str = "k"


Script: TypeAlias = Literal["claim", "settle", "renew"]


@dataclass(frozen=True, slots=True)
class Publish:
    """Insert the next job: through the broker of an instance, or by SQL that wakes nobody."""

    job: Job
    by: str | None = None
    with_next: bool = False
    """Beside the insertion that is the next step, if that is one."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Crash:
    """Kill an instance now."""

    instance: str


@dataclass(frozen=True, slots=True)
class CrashAt:
    """Kill an instance at its next statement of a kind, before it is sent or once it is done."""

    instance: str
    script: Script
    when: Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop an instance in order; `cancel` gives its handlers no time."""

    instance: str
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """Start an instance that was stopped or killed."""

    instance: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with the next statements of a kind of one instance."""

    instance: str
    kind: Literal["lose reply", "refuse", "delay"]
    script: Script
    times: int = 1
    seconds: float = 0.0


Step: TypeAlias = Publish | Advance | Crash | CrashAt | Stop | Restart | Fault


@dataclass(frozen=True, slots=True)
class Schedule:
    """One example, with everything that it needs to be run again."""

    steps: tuple[Step, ...]
    shape: Shape = "plain"
    instances: tuple[str, ...] = ("a",)
    workers: int = 1
    prefetch: int = 0
    every_group: bool = False
    """FIFO shapes: one subscription serves all groups."""
    cap: int | None = None
    lease: int = 10
    poll: float = 5.0
    choices: tuple[int, ...] = ()
    """Which of the waiting statements goes next, each time that there are several."""
    delays: Mapping[int, float] = field(default_factory=dict)
    """Number of a statement to the seconds for which it is held back."""

    def __str__(self) -> str:
        return pprint.pformat(self, width=100)
