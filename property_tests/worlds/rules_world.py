"""A small world of the rules: few rows, two workers over the model, and what may go wrong between them.

A state is a value. To take a step the model is built anew from it, so that all states can be seen, and
none twice.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from inboxkit import Column, InboxSpec
from inboxkit.abc import Claimed, ClaimFormName, Destination, Fence, Reading, Settlement, Verb
from inboxkit_testing.conformance import LEASE, START
from inboxkit_testing.model import ModelDatabase, ModelForm, ModelRow, open_model
from inboxkit_testing.model.table import Hold

__all__ = ["BY_NAME", "STEP", "Action", "Delivery", "Done", "Row", "State", "World"]

STEP: Final = 16
"""Seconds between two instants: two of them outlast a lease."""
WORKERS: Final = ("one", "two")
BY_NAME: Final = {
    "finish": Settlement(Verb.FINISH),
    "give back": Settlement(Verb.GIVE_BACK),
    "postpone": Settlement(Verb.POSTPONE, timedelta(seconds=STEP)),
    "hold": Settlement(Verb.HOLD, timedelta(seconds=10)),
    "move": Settlement(Verb.MOVE, destination=Destination(group="dead")),
}
Loss: TypeAlias = Literal["", "request", "reply"]
Token: TypeAlias = tuple[int, int]
"""Seconds from the start, and the microseconds that make it unlike others."""


class Row(NamedTuple):
    """A line of the table."""

    id: int
    group: str
    priority: int
    due: int
    attempt: int
    token: Token | None


class Delivery(NamedTuple):
    """A row as a worker has it."""

    row: int
    tokens: tuple[Token, ...]
    attempt: int | None
    """As the claim stored it."""
    hold: int
    """Its session's number; 0: none, or it has ended."""
    made: int
    """When its confirmed token was made."""
    counted: bool
    spent: bool
    is_current: bool
    """Nobody claimed or settled the row since. No worker knows this."""
    tried: str = ""
    """A settlement whose answer was lost."""
    unsure: bool = False
    """The answer of a renewal was lost."""


class State(NamedTuple):
    """All that there is."""

    now: int
    rows: tuple[Row, ...]
    held: tuple[tuple[int, int], ...]
    """Sessions that hold: number and row."""
    workers: tuple[tuple[Delivery, ...], ...]
    losses: int
    """How many more there may be."""
    crashes: int
    finished: frozenset[int] = frozenset()
    """Rows that are gone, as they should be."""
    coming: frozenset[int] = frozenset()
    """Rows that are not inserted yet."""


class Action(NamedTuple):
    """One step."""

    kind: Literal["claim", "settle", "release", "renew", "forget", "insert", "crash", "wait"]
    worker: int = 0
    row: int = 0
    verb: str = ""
    """Of a settlement; of a release ``"give back"`` or ``"count"``."""
    loss: Loss = ""
    """Of the request, so that nothing happens; or of the answer."""

    def __str__(self) -> str:
        if self.kind == "wait":
            return f"{STEP} seconds pass"
        if self.kind == "insert":
            return f"row {self.row} is inserted"
        what = f"{self.kind}s{f' row {self.row}' if self.row else ''} {self.verb}".rstrip()
        return f"{WORKERS[self.worker]} {what}" + (f", {self.loss} lost" if self.loss else "")


class Done(NamedTuple):
    """What a step led to."""

    state: State
    answer: Any
    """What the worker is told; of a claim (id, attempt, spent) of each row."""


@dataclass(frozen=True)
class World:
    """How large the world is."""

    name: str
    form: ClaimFormName
    fifo: bool = False
    rows: tuple[tuple[int, int], ...] = ((1, 0), (0, STEP))
    """Priority and due time of each: the second is more urgent, once it is due."""
    coming: frozenset[int] = frozenset()
    """Rows that are inserted at any time later."""
    cap: int = 1
    instants: int = 2
    """Steps of time."""
    losses: int = 1
    crashes: int = 1
    limit: int = 1
    """Rows of one claim, in the lease form."""

    @property
    def is_lease(self) -> bool:
        return self.form == "lease"

    def roles(self) -> dict[str, Any]:
        """The table's, beside those that every bench has."""
        return {"id": Column("id", type=int), "payload": None, "fifo": self.fifo}

    def initial(self) -> State:
        """Nothing has happened yet."""
        rows = tuple(self.row(id) for id in range(1, len(self.rows) + 1) if id not in self.coming)
        return State(
            0, rows, (), ((), ()), self.losses, self.crashes, frozenset(), coming=self.coming
        )

    def row(self, id: int) -> Row:
        """A row as it is inserted."""
        return Row(id, "a", *self.rows[id - 1], 1, None)

    def actions(self, state: State) -> Iterator[Action]:
        """What may happen next."""
        lost: tuple[Loss, ...] = ("", "request", "reply") if state.losses else ("",)
        for worker, deliveries in enumerate(state.workers):
            # Of idle workers it is all one which goes first.
            if not deliveries and (worker == 0 or state.workers[0]):
                yield from (Action("claim", worker, loss=loss) for loss in lost)
            for one in deliveries:
                yield from self._ends(state, worker, one, lost)
            if state.crashes and deliveries:
                yield Action("crash", worker)
        yield from (Action("insert", row=id) for id in sorted(state.coming))
        if state.now < self.instants * STEP:
            yield Action("wait")

    def _ends(
        self, state: State, worker: int, one: Delivery, lost: tuple[Loss, ...]
    ) -> Iterator[Action]:
        verbs = (one.tried,) if one.tried else self._verbs(one)
        for loss in lost:
            for verb in verbs:
                yield Action("settle", worker, one.row, verb, loss)
            # None is sent after a settlement or renewal of unknown outcome.
            if not (one.tried or one.unsure or one.spent):
                yield from self._releases(worker, one, loss)
            if self.is_lease and not one.tried and state.now < one.tokens[-1][0]:
                yield Action("renew", worker, one.row, loss=loss)
        if self.is_lease and state.now >= max(second for second, _ in one.tokens):
            yield Action("forget", worker, one.row)

    def _releases(self, worker: int, one: Delivery, loss: Loss) -> Iterator[Action]:
        # What only ends a session, and writes nothing, cannot be lost.
        silent = {"row lock": "give back", "advisory lock": "count"}.get(self.form)
        for verb in ("give back", "count"):
            if not (loss and verb == silent):
                yield Action("release", worker, one.row, verb, loss)

    def _verbs(self, one: Delivery) -> tuple[str, ...]:
        """What may become of a delivery: the last one of a row is not followed by another."""
        if one.spent:
            return ("move",)
        assert one.attempt is not None
        read = one.attempt if self.form == "row lock" else one.attempt - one.counted
        if read >= self.cap:
            return ("finish", "move")
        return ("finish", "postpone", "hold") if self.is_lease else ("finish", "postpone")

    def step(self, state: State, action: Action) -> Done:
        """Take a step."""
        scratch = _Scratch(self, state)
        answer = getattr(scratch, "_" + action.kind)(action)
        return Done(scratch.frozen(), answer)

    def claimable_in_the_end(self, state: State) -> set[int]:
        """Rows of the queue that a new worker gets once all others have gone."""
        scratch = _Scratch(self, replace_times(state, (self.instants + 4) * STEP))
        scratch.db.holds.clear()
        found: set[int] = set()
        while rows := _at_once(scratch.forms[0].claim(limit=9)).rows:
            if found & {row.fence.id for row in rows}:
                break  # it was finished
            found |= {row.fence.id for row in rows}
            for row in rows:
                _at_once(scratch.forms[0].settle([(row.fence, BY_NAME["finish"])]))
        return found


def replace_times(state: State, now: int) -> State:
    """The same at another time."""
    return state._replace(now=now)


@dataclass
class _Clock:
    seconds: int

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return float(self.seconds)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def sleep_until(self, instant: datetime) -> None:
        raise NotImplementedError

    def external(self, label: str) -> AbstractContextManager[None]:
        return nullcontext()


def _at_once(verb: Coroutine[Any, Any, Any]) -> Any:
    """The model waits for nothing."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the model waited")


def _token(end: datetime) -> Token:
    since = end - START
    return since.days * 86400 + since.seconds, since.microseconds


def _end(token: Token) -> datetime:
    return START + timedelta(seconds=token[0], microseconds=token[1])


@dataclass
class _Scratch:
    """The model, as a state has it, to take one step."""

    world: World
    before: State
    workers: list[list[Delivery]] = field(init=False)

    def __post_init__(self) -> None:
        world, state = self.world, self.before
        self.clock = _Clock(state.now)
        self.db = ModelDatabase(self.clock)
        self.table = self.db.create_table(_spec(world.form, fifo=world.fifo))
        for row in state.rows:
            self._add(row)
        for number, id in state.held:
            found = self.table.find(id) or ModelRow(id)
            self.db.holds[number] = Hold(found, f"jobs-{id}")
        self.db._last_hold = len(state.held)
        self.workers = [list(deliveries) for deliveries in state.workers]
        # Beyond all tokens that there are, so that no new one is like any of them.
        step = max((k for _, k in _tokens(state)), default=0)
        self.forms: list[ModelForm] = [
            open_model(self.db, self.table.spec, group="a", lease=LEASE, cap=world.cap, step=step)
            for _ in self.workers
        ]
        self.losses, self.crashes = state.losses, state.crashes
        self.finished, self.coming = state.finished, state.coming
        for form in self.forms:  # a session belongs to the worker that has the delivery
            if hasattr(form, "_numbers"):
                form._numbers.update(number for number, _ in state.held)

    def frozen(self) -> State:
        """The state that the model is in now."""
        rows = [
            Row(
                row.id,
                row.group,
                row.priority,
                _token(row.retry_after)[0],
                row.attempt,
                None if row.locked_until is None else _token(row.locked_until),
            )
            for row in sorted(self.table.rows, key=lambda row: row.id)  # type: ignore[no-any-return]
        ]
        numbers = {old: new for new, old in enumerate(self.db.holds, 1)}
        held = tuple((numbers[old], hold.row.id) for old, hold in self.db.holds.items())
        workers = tuple(
            tuple(one._replace(hold=numbers.get(one.hold, 0)) for one in deliveries)
            for deliveries in self.workers
        )
        state = State(
            self.clock.seconds,
            tuple(rows),
            held,
            workers,
            self.losses,
            self.crashes,
            self.finished,
            self.coming,
        )
        return _renamed(state)

    def _add(self, row: Row) -> None:
        self.table.rows.append(
            ModelRow(
                row.id,
                group=row.group,
                priority=row.priority,
                retry_after=_end((row.due, 0)),
                attempt=row.attempt,
                locked_until=None if row.token is None else _end(row.token),
            )
        )

    # Steps.

    def _insert(self, action: Action) -> None:
        self.coming -= {action.row}
        self._add(self.world.row(action.row))

    def _wait(self, action: Action) -> None:
        self.clock.seconds += STEP

    def _crash(self, action: Action) -> None:
        self.crashes -= 1
        for one in self.workers[action.worker]:
            self.db.holds.pop(one.hold, None)
        self.workers[action.worker].clear()

    def _forget(self, action: Action) -> None:
        self._drop(action)

    def _claim(self, action: Action) -> Any:
        self.losses -= bool(action.loss)
        if action.loss == "request":
            return "unknown"
        limit = self.world.limit if self.world.is_lease else 1
        claim = _at_once(self.forms[action.worker].claim(limit=limit))
        for row in claim.rows:
            self._outdate(row.fence.id)
        if action.loss == "reply":
            for row in claim.rows:
                self.db.holds.pop(row.fence.hold, None)
            return "unknown"
        self.workers[action.worker] += [self._delivery(row) for row in claim.rows]
        return [(row.fence.id, row.attempt, row.spent) for row in claim.rows]

    def _delivery(self, row: Claimed) -> Delivery:
        fence = row.fence
        tokens = tuple(map(_token, fence.tokens))
        hold = fence.hold or 0
        now = self.clock.seconds
        return Delivery(
            fence.id, tokens, fence.attempt, hold, now, row.counted, row.spent, is_current=True
        )

    def _settle(self, action: Action) -> Any:
        one = self._find(action)
        sent = [(self._fence(one), BY_NAME[action.verb])]
        return self._written(action, self.forms[action.worker].settle, sent)

    def _release(self, action: Action) -> Any:
        one = self._find(action)
        sent = [(self._fence(one), action.verb == "give back" and one.counted)]
        return self._written(action, self.forms[action.worker].release, sent)

    def _written(self, action: Action, verb: Any, sent: list[Any]) -> Any:
        one = self._find(action)
        self.losses -= bool(action.loss)
        if action.loss != "request":
            (settled,) = _at_once(verb(sent))
            if settled.result == "written":
                self._outdate(one.row)
                if action.verb == "finish":
                    self.finished |= {one.row}
            if not action.loss:
                self._drop(action)
                return settled.result
        self.db.holds.pop(one.hold, None)  # the session breaks
        if self.world.is_lease and action.kind == "settle":
            # To be repeated; `one` may not be current any more.
            self._replace(action, self._find(action)._replace(tried=action.verb))
        else:
            self._drop(action)
        return "unknown"

    def _renew(self, action: Action) -> Any:
        one = self._find(action)
        self.losses -= bool(action.loss)
        held = (self._fence(one), Reading(_end((one.made, 0)), float(one.made)))
        row = self.table.find(one.row)
        before = None if row is None else row.locked_until
        renewal = _at_once(self.forms[action.worker].renew([held], timeout=5))
        if not action.loss:
            if one.row not in renewal.renewed:
                self._drop(action)
                return "lost"
            tokens = (_token(renewal.renewed[one.row]),)
            self._replace(
                action, one._replace(tokens=tokens, made=self.clock.seconds, unsure=False)
            )
            return "renewed"
        # What was asked for may stand in the row.
        if one.row in renewal.renewed:
            sent = _token(renewal.renewed[one.row])
        else:
            step = max(k for _, k in _tokens(self.before)) + 1
            sent = (self.clock.seconds + int(LEASE.total_seconds()), step)
        if action.loss == "request" and row is not None:
            row.locked_until = before
        self._replace(action, one._replace(tokens=(*one.tokens, sent), unsure=True))
        return "unknown"

    # What workers know.

    def _fence(self, one: Delivery) -> Fence:
        return Fence(one.row, tuple(map(_end, one.tokens)), one.attempt, one.hold or None)

    def _find(self, action: Action) -> Delivery:
        return next(one for one in self.workers[action.worker] if one.row == action.row)

    def _drop(self, action: Action) -> None:
        self.workers[action.worker].remove(self._find(action))

    def _replace(self, action: Action, new: Delivery) -> None:
        deliveries = self.workers[action.worker]
        deliveries[deliveries.index(self._find(action))] = new

    def _outdate(self, id: int) -> None:
        """Whoever had the row has it no more."""
        for worker, deliveries in enumerate(self.workers):
            self.workers[worker] = [
                one._replace(is_current=one.is_current and one.row != id) for one in deliveries
            ]


_SPECS: dict[tuple[ClaimFormName, bool], InboxSpec] = {}


def _spec(form: ClaimFormName, *, fifo: bool) -> InboxSpec:
    """The table's description."""
    if (form, fifo) not in _SPECS:
        more: dict[str, Any] = {}
        if form == "lease":
            more["locked_until"] = Column("lease")
        elif form == "advisory lock":
            more["advisory_lock"] = "jobs-{id}"
        _SPECS[form, fifo] = InboxSpec(
            "jobs",
            id=Column("id", type=int),
            group=Column("grp"),
            priority=Column("prio"),
            retry_after=Column("due", default=None),
            attempt=Column("tries"),
            fifo=fifo,
            **more,
        )
    return _SPECS[form, fifo]


def _tokens(state: State) -> Iterator[Token]:
    yield from (row.token for row in state.rows if row.token is not None)
    for deliveries in state.workers:
        for one in deliveries:
            yield from one.tokens


def _renamed(state: State) -> State:
    """The same with the smallest microseconds: they say only which tokens are equal."""
    names: dict[Token, Token] = {}
    for token in _tokens(state):
        if token not in names:
            names[token] = (token[0], 1 + sum(known[0] == token[0] for known in names))
    rows = tuple(row._replace(token=row.token and names[row.token]) for row in state.rows)
    workers = tuple(
        tuple(one._replace(tokens=tuple(names[token] for token in one.tokens)) for one in each)
        for each in state.workers
    )
    return state._replace(rows=rows, workers=workers)
