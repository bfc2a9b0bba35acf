"""A way through a small world, gone by real claim forms on a real database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from inboxkit.abc import ClaimForm, Fence, Reading
from inboxkit.errors import DatabaseBusyError, OutcomeUnknownError
from inboxkit_testing import ObservedDatabase, VirtualClock, open_test_database
from inboxkit_testing.conformance import DatabaseBench, ManualClock
from inboxkit_testing.faults import Fault, Operation

from .rules_search import Step
from .rules_world import BY_NAME, STEP, Action, Row, World

__all__ = ["DisagreementError", "Stage"]


class DisagreementError(AssertionError):
    """The database answered, or stored, something else than the rules say."""


class _Following(ManualClock):
    """The bench's time is that of the run."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()


class _Bench(DatabaseBench):
    def clock_of(self, database: Any) -> ManualClock:
        return _Following(database.clock)


@dataclass
class _Held:
    """A row as a worker has it."""

    fence: Fence
    reading: Reading
    counted: bool


class Stage:
    """The table of a world on one database, and its two workers, each a process of its own.

    Args:
        world: Whose ways are gone.
        url: An empty database, as for `open_test_database`.
        clock: Of the run; frozen.
    """

    def __init__(self, world: World, url: str, clock: VirtualClock) -> None:
        self._world = world
        self._url = url
        self._clock = clock
        self._databases: list[ObservedDatabase] = []
        self._forms: list[ClaimForm] = []
        self._held: dict[tuple[int, int], _Held] = {}
        self._faults: list[Fault] = []
        self._start = clock.now()

    async def open(self) -> None:
        """Make the table."""
        watcher = open_test_database(self._url, clock=self._clock, instance="watcher")
        self._bench = _Bench(watcher, self._world.form, f"{self._world.name} jobs")
        await self._bench.__aenter__()
        await self._bench.create(**self._world.roles())
        self._databases = [await self._process(worker) for worker in (0, 1)]

    async def aclose(self) -> None:
        """Drop it."""
        await self._end_forms()
        for database in self._databases:
            await database.aclose()
        await self._bench.__aexit__(None, None, None)

    async def _process(self, worker: int) -> ObservedDatabase:
        database = open_test_database(self._url, clock=self._clock, instance=str(worker))
        await database.open()
        return database

    def _form(self, worker: int) -> ClaimForm:
        database = self._databases[worker]
        return self._bench.open_on(database, "a", self._world.cap, step=500 * worker)

    async def _end_forms(self) -> None:
        for form in self._forms:
            await form.close()
        self._held.clear()

    async def go(self, way: list[Step]) -> None:
        """Go a way from the start.

        Raises:
            DisagreementError: At the first step after which an answer or the rows differ.
        """
        await self._end_forms()
        self._forms = [self._form(worker) for worker in (0, 1)]
        self._start = self._clock.now()
        await self._bench.delete_all()
        for row in self._world.initial().rows:
            await self._add(row)
        for number, (_, action, done) in enumerate(way, 1):
            answer = await getattr(self, "_" + action.kind)(action)
            rows = await self._rows()
            expected = [
                (*row[:5], None if row.token is None else row.token[0]) for row in done.state.rows
            ]
            if (answer, rows) != (done.answer, expected):
                lines = [f"{n}. {act}: {end.answer}" for n, (_, act, end) in enumerate(way, 1)]
                raise DisagreementError(
                    "\n".join(
                        [
                            f"{self._world.name} on {self._bench.db.dialect}: step {number} of",
                            *lines,
                            f"answered {answer!r}, rows {rows}",
                            f"by the rules {done.answer!r}, rows {expected}",
                        ]
                    )
                )

    async def _rows(self) -> list[Any]:
        found = await self._bench.rows("id", "grp", "prio", "due", "tries", "lease")
        return [(*row[:3], self._seconds(row[3]), row[4], self._seconds(row[5])) for row in found]

    def _seconds(self, value: datetime | None) -> int | None:
        return None if value is None else (value - self._start) // timedelta(seconds=1)

    async def _add(self, row: Row) -> None:
        due = self._start + timedelta(seconds=row.due)
        await self._bench.insert({"id": row.id, "prio": row.priority, "due": due})

    # Steps; each returns what the rules say of it.

    async def _insert(self, action: Action) -> None:
        await self._add(self._world.row(action.row))

    async def _wait(self, action: Action) -> None:
        await self._clock.advance(timedelta(seconds=STEP))

    async def _crash(self, action: Action) -> None:
        worker = action.worker
        if self._databases[worker].dialect == "sqlite":
            await self._forms[worker].close()  # the keys of a process end with it
        await self._databases[worker].crash()
        self._databases[worker] = await self._process(worker)
        self._forms[worker] = self._form(worker)
        self._held = {key: held for key, held in self._held.items() if key[0] != worker}

    async def _forget(self, action: Action) -> None:
        del self._held[action.worker, action.row]

    async def _claim(self, action: Action) -> Any:
        limit = self._world.limit if self._world.is_lease else 1
        fault = self._lose(action, "claim")
        try:
            claim = await self._forms[action.worker].claim(limit=limit)
        except (OutcomeUnknownError, DatabaseBusyError):
            return "unknown" if fault is not None and fault.hits else "busy"
        for row in claim.rows:
            held = _Held(row.fence, row.reading, row.counted)
            self._held[action.worker, row.fence.id] = held
        if fault is not None and not (claim.rows or fault.hits or self._world.is_lease):
            return "unknown"  # nothing was written, so there was no such answer to be lost
        return [(row.fence.id, row.attempt, row.spent) for row in claim.rows]

    async def _settle(self, action: Action) -> Any:
        held = self._held[action.worker, action.row]
        form = self._forms[action.worker]
        fault = self._lose(action, "settle")
        (settled,) = await form.settle([(held.fence, BY_NAME[action.verb])])
        if not (action.loss and self._world.is_lease):
            del self._held[action.worker, action.row]
        return self._told(settled.result, fault)

    async def _release(self, action: Action) -> Any:
        held = self._held.pop((action.worker, action.row))
        give_back = action.verb == "give back" and held.counted
        fault = self._lose(action, "settle")
        (settled,) = await self._forms[action.worker].release([(held.fence, give_back)])
        return self._told(settled.result, fault)

    async def _renew(self, action: Action) -> Any:
        held = self._held[action.worker, action.row]
        fault = self._lose(action, "renew")
        form = self._forms[action.worker]
        renewal = await form.renew([(held.fence, held.reading)], timeout=5)
        if action.row in renewal.renewed:
            assert renewal.reading is not None
            held.reading = renewal.reading
            held.fence = replace(held.fence, tokens=(renewal.renewed[action.row],))
            return "renewed"
        if action.row in renewal.unknown:
            tokens = (*held.fence.tokens, renewal.unknown[action.row])
            held.fence = replace(held.fence, tokens=tokens)
            return self._told("unknown", fault)
        del self._held[action.worker, action.row]
        return "lost" if action.row in renewal.lost else "failed"

    def _told(self, answer: str, fault: Fault | None) -> str:
        if fault is not None and not fault.hits:
            return f"{answer}, and nothing was lost"
        return answer

    def _lose(self, action: Action, script: str) -> Fault | None:
        """Let the next request of a script, or the answer to what ends it, be lost."""
        faults = self._databases[action.worker].faults
        faults.clear()
        if action.loss == "request":
            return faults.refuse(
                lambda op: op.script == script and op.kind == "statement", error=_lost
            )
        if action.loss == "reply":
            return faults.lose_reply(_LASTING[self._world.form, script == "claim"])
        return None


_LASTING: dict[tuple[str, bool], Callable[[Operation], bool]] = {
    # Written in the transaction that holds the row, and committed at the end.
    ("row lock", True): lambda op: op.script == op.name == "claim",
    ("row lock", False): lambda op: op.kind == "commit",
    # A statement that asks for keys comes before the one that counts.
    ("advisory lock", True): lambda op: op.script == op.name == "claim",
    ("advisory lock", False): lambda op: op.script == "settle" and op.commits,
    ("lease", True): lambda op: op.script == "claim" and op.commits,
    ("lease", False): lambda op: op.script in ("settle", "renew") and op.commits,
}
"""By form and whether it is a claim: what makes a verb last, where its answer is lost."""


def _lost(operation: Operation) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{operation.name}: the test lost the request", statement=operation.name
    )
