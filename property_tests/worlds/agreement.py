"""The same steps on the model and on a claim form of a database: both must answer the same, and
their rows be equal after each step."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from benches.cells import Cell
from hypothesis import strategies as st

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column
from inboxkit.abc import Claimed, Settled
from inboxkit_testing.conformance import (
    FINISH,
    GIVE_BACK,
    RULES,
    START,
    Bench,
    ModelBench,
    hold,
    postpone,
)

__all__ = ["DisagreementError", "Schedule", "Shape", "agree", "create", "schedules", "shapes_of"]

CAP = 3
COLUMNS = ("id", "grp", "prio", "due", "tries", "done", "lease", "owner")
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Insert:
    """A row; due so many seconds from now, or (None) with a NULL due time."""

    place: int
    """The higher digits of its id: where it stands among its equals."""
    group: str
    priority: int | None
    due: float | None
    attempt: int | None
    owner: str


@dataclass(frozen=True)
class Claim:
    """Claim up to so many rows."""

    by: str
    group: str
    most: int


@dataclass(frozen=True)
class Settle:
    """Settle a row: of those ever claimed, counted from the last."""

    row: int
    settlement: Settlement


@dataclass(frozen=True)
class Release:
    """Release a row."""

    row: int
    give_back: bool


@dataclass(frozen=True)
class Crash:
    """End the process that has a row."""

    row: int


@dataclass(frozen=True)
class Renew:
    """Renew a row's hold."""

    row: int


@dataclass(frozen=True)
class Requeue:
    """Bring a dead row back by hand."""


@dataclass(frozen=True)
class Advance:
    """Let time pass."""

    seconds: float


Step: TypeAlias = Insert | Claim | Settle | Release | Crash | Renew | Requeue | Advance
Schedule: TypeAlias = list[Step]


@dataclass(frozen=True)
class Shape:
    """A kind of table."""

    name: str
    roles: dict[str, Any]
    has_retry_after: bool = True
    has_groups: bool = True


OWNER = Column("owner", type=str)
SHAPES = [
    Shape("plain", {}),
    Shape("kept", {"processed_at": Column("done")}),
    Shape("fifo", {"fifo": True}),
    Shape("keyed", {}),
    Shape("bare", {"retry_after": None, "attempt": None}, has_retry_after=False),
    Shape("ungrouped", {"group": None}, has_groups=False),
]
"""The keyed table's advisory lock is made of a column that rows share."""


def shapes_of(cell: Cell) -> list[Shape]:
    """Those that a form serves."""
    rules = RULES[cell.form]
    left_out = {"fifo"} if not rules.has_fifo else set[str]()
    left_out |= {"keyed"} if not rules.has_keys else set()
    return [shape for shape in SHAPES if shape.name not in left_out]


async def create(bench: Bench, shape: Shape) -> None:
    """Make the table of a shape, and the one where its dead letters go."""
    roles = {"columns": (OWNER,), **shape.roles}
    if shape.name == "keyed":
        roles["advisory_lock"] = bench.table + "-{owner}"
    dead = "" if shape.has_groups else bench.table + " dead"
    await bench.create(nullable=True, dead=dead, id=Column("id", type=int), payload=None, **roles)


def schedules(shape: Shape) -> st.SearchStrategy[Schedule]:
    """Steps for a table of this shape."""
    delays = st.sampled_from([0.0, 0.5, 1.0, 5.0, 60.0])
    which = st.sampled_from([0, 0, 1, 2])
    dead = Destination(group="dead") if shape.has_groups else None
    inserts = st.builds(
        Insert,
        place=st.integers(1, 3),
        group=st.sampled_from("aaaaab"),
        priority=st.sampled_from([1, 1, 0, 2, None]),
        due=st.sampled_from([0.0, 0.0, -1.0, -60.0, 1.0, 5.0, None]),
        attempt=st.sampled_from([1, 1, CAP, CAP + 1, None]),
        owner=st.sampled_from("xy"),
    )
    claims = st.builds(
        Claim,
        by=st.sampled_from(["one", "two"]),
        group=st.sampled_from(["a", "a", "a", "a", "a", "b", "dead"]),
        most=st.integers(1, 3),
    )
    settlements = [st.just(FINISH), st.just(GIVE_BACK), delays.map(hold)]
    settlements.append(st.just(Settlement(Verb.MOVE, destination=dead)))
    if shape.has_retry_after:
        settlements.append(delays.map(postpone))
    ends = st.one_of(
        *(st.builds(Settle, which, settlement) for settlement in settlements),
        st.builds(Release, which, st.booleans()),
        st.builds(Crash, which),
        st.builds(Renew, which),
        st.builds(Requeue),
    )
    times = st.builds(Advance, st.sampled_from([0.0, 0.5, 1.0, 5.0, 29.5, 30.0, 31.0, 60.0]))
    # Rows, a claim, what becomes of its rows, and time: few steps then find nothing to do.
    rounds = st.tuples(
        st.lists(inserts, max_size=2),
        claims.map(lambda claim: [claim]),
        st.one_of(st.just([]), st.lists(ends, min_size=1, max_size=3)),
        st.one_of(st.just([]), times.map(lambda time: [time])),
    )
    first = st.lists(inserts, min_size=2, max_size=4)
    return st.builds(_joined, first, st.lists(rounds, min_size=2, max_size=6))


def _joined(first: list[Insert], rounds: list[tuple[list[Step], ...]]) -> Schedule:
    return [*first, *(step for one in rounds for part in one for step in part)]


class DisagreementError(AssertionError):
    """The two sides answered, or stored, different things."""


async def agree(schedule: Schedule, real: Bench, model: ModelBench, shape: Shape) -> None:
    """Run a schedule on both; the tables are empty.

    Raises:
        DisagreementError: With the step, and what both sides said.
    """
    sides = Side(real, shape), Side(model, shape)
    for number, step in enumerate(schedule):
        said = [(await side.do(step), await side.image()) for side in sides]
        if said[0] != said[1]:
            raise DisagreementError(
                f"{real}, {shape.name} table, step {number}: {step}\n"
                f"by this form: {said[0]}\nby the model:  {said[1]}"
            )


class Side:
    """One of the two, and what it has claimed."""

    def __init__(self, bench: Bench, shape: Shape) -> None:
        self.bench = bench
        self.shape = shape
        self.claimed: list[Claimed] = []
        self.held: set[int] = set()
        """Places of rows that were not settled, released or crashed."""
        self.inserted = 0

    def do(self, step: Step) -> Awaitable[Any]:
        """Take a step; returns all that both sides must agree on."""
        return getattr(self, "_" + type(step).__name__.lower())(step)  # type: ignore[no-any-return]

    async def image(self) -> list[Any]:
        """All rows."""
        names = [None] if self.shape.has_groups else [None, self.bench.table + " dead"]
        tables = [await self.bench.rows(*COLUMNS, table=name) for name in names]
        return [[tuple(map(_rounded, row)) for row in table] for table in tables]

    async def _insert(self, step: Insert) -> Any:
        self.inserted += 1
        id = step.place * 1000 + self.inserted
        row: dict[str, Any] = {"id": id, "prio": step.priority, "owner": step.owner}
        null: dict[str, Any] = {}
        if self.shape.has_groups:
            row["grp"] = step.group
        if "attempt" not in self.shape.roles:
            row["tries"] = step.attempt
        if self.shape.has_retry_after:
            row["due"] = self.bench.now + timedelta(seconds=step.due or 0)
            null = {"due": None} if step.due is None else {}
        made = await self.bench.insert(row)
        await self.bench.set(id, **null)
        return made

    async def _claim(self, step: Claim) -> Any:
        rows = await self.bench.claim(step.most, step.group, cap=CAP, by=step.by)
        self.held |= set(range(len(self.claimed), len(self.claimed) + len(rows)))
        self.claimed += rows
        return [
            (
                (row.fence.id, row.fence.attempt, _rounded(row.fence.tokens)),
                (row.attempt, row.counted, row.spent, row.group, row.reading.now),
                {name: _rounded(value) for name, value in row.values.items()},
            )
            for row in rows
        ]

    def _pick(self, row: int) -> int | None:
        """A row that was claimed. Those in work in a session are settled once."""
        places = range(len(self.claimed))
        if self.bench.rules.rows_a_claim is not None:
            places = sorted(self.held)
        return places[-1 - row] if row < len(places) else None

    async def _settle(self, step: Settle) -> Any:
        if (place := self._pick(step.row)) is None:
            return None
        settlement = step.settlement
        if self.claimed[place].spent:
            # It has no handler, so nothing else becomes of it.
            settlement = Settlement(Verb.MOVE, destination=Destination(group="dead"))
        if settlement.verb is Verb.MOVE and not self.shape.has_groups:
            destination = Destination(table=self.bench.table + " dead")
            settlement = Settlement(Verb.MOVE, destination=destination)
        self.held.discard(place)
        return self._said(await self.bench.settle(self.claimed[place], settlement))

    async def _release(self, step: Release) -> Any:
        if (place := self._pick(step.row)) is None:
            return None
        row = self.claimed[place]
        self.held.discard(place)
        # What was not counted is not given back.
        give_back = step.give_back and row.counted
        return self._said(await self.bench.release(row, give_back=give_back))

    def _said(self, settled: Settled) -> Any:
        # Of a row that is due now a form need not say so.
        due = _rounded(settled.due)
        return settled.result, None if due == self.bench.now else due

    async def _crash(self, step: Crash) -> Any:
        if (place := self._pick(step.row)) is None or place not in self.held:
            return None
        row = self.claimed[place]
        await self.bench.crash(row)
        if self.bench.rules.rows_a_claim is None:
            return None
        self.held.discard(place)
        return (await self.bench.settle(row, FINISH)).result  # too late

    async def _renew(self, step: Renew) -> Any:
        if (place := self._pick(step.row)) is None:
            return None
        self.claimed[place], renewal = await self.bench.renew(self.claimed[place])
        tokens = {id: _rounded(token) for id, token in renewal.renewed.items()}
        return tokens, renewal.lost, renewal.failed

    async def _requeue(self, step: Requeue) -> Any:
        if not self.shape.has_groups:
            return None
        in_work = {self.claimed[place].fence.id for place in self.held}
        values = {"grp": "a", "tries": 1} if "attempt" not in self.shape.roles else {"grp": "a"}
        for id, group in await self.bench.rows("id", "grp"):
            if group == "dead" and id not in in_work:
                await self.bench.set(id, **values)
                return id
        return None

    async def _advance(self, step: Advance) -> Any:
        self.bench.advance(seconds=step.seconds)
        return self.bench.now - START


def _rounded(value: Any) -> Any:
    """Without the microseconds that make one expiry unlike another."""
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    if isinstance(value, datetime):
        return value - timedelta(microseconds=value.microsecond % 1000)
    return value
