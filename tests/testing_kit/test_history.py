"""The checks of `History`: each finds the run that breaks its rule alone, and passes a real one."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    ack,
    events,
    retry_after,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import History, HistoryHandler, InvariantViolation, World, note_calls
from inboxkit_testing._queues import QueueFacts, queues_of
from inboxkit_testing.marks import Began, Crashed, Cut, Ended, Unsure

START = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
MS = timedelta(milliseconds=1)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


class Story:
    """A history told line by line."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.now = START

    def after(self, seconds: float) -> Story:
        self.now += s(seconds)
        return self

    def _add(self, kind: Any, who: str, **fields: Any) -> Story:
        known = {"at": self.now, "instance": who, "queue": "jobs"} | fields
        self.events.append(kind(**known))
        return self

    def publishes(self, *ids: int) -> Story:
        for id in ids:
            self._add(events.Published, "world", id=id)
        return self

    def claims(
        self, who: str, id: int, attempt: int | None = 1, lease: timedelta | None = LEASE
    ) -> Story:
        until = None if lease is None else self.now + lease
        return self._add(events.Claimed, who, id=id, attempt=attempt, locked_until=until)

    def renews(self, who: str, id: int, attempt: int = 1) -> Story:
        until = self.now + LEASE
        return self._add(events.Renewed, who, id=id, attempt=attempt, locked_until=until)

    def begins(self, who: str, id: int, attempt: int | None = 1, **row: Any) -> Story:
        row = {"group": None, "key": None, "priority": None, "due": None} | row
        return self._add(Began, who, id=id, attempt=attempt, **row)

    def ends(
        self, who: str, id: int, attempt: int | None = 1, outcome: str = "ack", **row: Any
    ) -> Story:
        row = {"group": None, "key": None} | row
        return self._add(Ended, who, id=id, attempt=attempt, outcome=outcome, **row)

    def settles_unheard(self, who: str, id: int, attempt: int = 1) -> Story:
        return self._add(events.OutcomeUnknown, who, id=id, attempt=attempt, is_gone=True)

    def hears_nothing(self, who: str, id: int, attempt: int = 1) -> Story:
        return self._add(events.OutcomeUnknown, who, id=id, attempt=attempt)

    def finishes(self, who: str, id: int, attempt: int | None = 1) -> Story:
        return self._add(events.Finished, who, id=id, attempt=attempt, outcome="ack")

    def retries(
        self, who: str, id: int, attempt: int = 1, delay: float = 0, due: float | None = None
    ) -> Story:
        seconds = delay or due
        until = self.now + s(seconds) if seconds else None
        return self._add(events.Retried, who, id=id, attempt=attempt, delay=s(delay), due=until)

    def moves(self, who: str, id: int, attempt: int = 1) -> Story:
        return self._add(events.DeadLettered, who, id=id, attempt=attempt, destination="dead")

    def gives_back(self, who: str, id: int, attempt: int = 1) -> Story:
        return self._add(events.Released, who, id=id, attempt=attempt, given_back=True)

    def loses(self, who: str, id: int, attempt: int = 1) -> Story:
        return self._add(events.Lost, who, id=id, attempt=attempt, reason="its connection ended")

    def is_cut(self, who: str) -> Story:
        return self._add(Cut, who, queue="", text="cut off")

    def may_have_published(self) -> Story:
        """By somebody who crashed, or heard no answer."""
        return self._add(Unsure, "world", queue="", text="a row of 'jobs' may be there")

    def crashes(self, who: str) -> Story:
        return self._add(Crashed, who, queue="", text="crashed")

    def handles(self, who: str, id: int, attempt: int = 1, **row: Any) -> Story:
        """From the claim to the ack."""
        keys = {name: row[name] for name in ("group", "key") if name in row}
        self.claims(who, id, attempt).begins(who, id, attempt, **row).after(1)
        return self.ends(who, id, attempt, **keys).finishes(who, id, attempt)

    @property
    def history(self) -> History:
        return History(self.events)


BREAKS: list[tuple[str, Story, Callable[[History], Any], int, tuple[str, ...]]] = [
    (
        "nothing_lost",
        Story().publishes(1, 2).handles("a", 1),
        lambda h: h.nothing_lost(),
        2,
        ("world",),
    ),
    (
        "nothing_lost",
        Story().publishes(1).claims("a", 1).begins("a", 1).crashes("a"),
        lambda h: h.nothing_lost(left=[]),
        1,
        ("world", "a"),
    ),
    (
        "nothing_lost",
        Story().publishes(1).handles("a", 1),
        lambda h: h.nothing_lost(left={"jobs": [1], "other": [2]}),
        1,
        ("a",),
    ),
    (
        # Its session is gone with the answer, but the next claim shows that nothing was written.
        "nothing_lost",
        Story()
        .publishes(1)
        .claims("a", 1, lease=None)
        .begins("a", 1)
        .ends("a", 1)
        .hears_nothing("a", 1)
        .claims("b", 1, 2, lease=None)
        .begins("b", 1, 2)
        .ends("b", 1, 2, outcome="lost")
        .loses("b", 1, 2),
        lambda h: h.nothing_lost(left=[]),
        1,
        ("world", "b"),
    ),
    (
        "none_settled_twice",
        Story()
        .publishes(1)
        .claims("a", 1)
        .after(31)
        .claims("b", 1, 2)
        .finishes("a", 1)
        .finishes("b", 1, 2),
        lambda h: h.none_settled_twice(),
        1,
        ("a", "b"),
    ),
    (
        "none_settled_twice",
        Story().publishes(1).handles("a", 1).after(60).claims("b", 1, 1),
        lambda h: h.none_settled_twice(),
        1,
        ("a", "b"),
    ),
    (
        "attempts",
        Story().publishes(1).claims("a", 1).retries("a", 1).claims("b", 1, 1),
        lambda h: h.attempts(),
        1,
        ("a", "b"),
    ),
    (
        "attempts",
        Story().publishes(1).claims("a", 1).retries("a", 1).claims("b", 1, 3),
        lambda h: h.attempts(),
        1,
        ("a", "b"),
    ),
    ("attempts", Story().publishes(1).claims("a", 1, 2), lambda h: h.attempts(), 1, ("world", "a")),
    ("caps", Story().claims("a", 1, 3).begins("a", 1, 3), lambda h: h.caps(2), 1, ("a",)),
    ("caps", Story().claims("a", 1).moves("a", 1), lambda h: h.caps({"jobs": 2}), 1, ("a",)),
    ("caps", Story().claims("a", 1, 2).retries("a", 1, 2), lambda h: h.caps(2), 1, ("a",)),
    (
        "one_in_work_per_row",
        Story().claims("a", 1).begins("a", 1).after(31).claims("b", 1, 2).begins("b", 1, 2),
        lambda h: h.one_in_work_per_row(),
        1,
        ("a", "b"),
    ),
    (
        "one_in_work_per_group",
        Story().begins("a", 1, group="g").begins("b", 3, group="h").begins("b", 2, group="g"),
        lambda h: h.one_in_work_per_group("jobs"),
        2,
        ("a", "b"),
    ),
    (
        "one_in_work_per_key",
        Story().begins("a", 1, key="k").begins("b", 3, key="k").begins("a", 2, key="k"),
        lambda h: h.one_in_work_per_key(),
        2,
        ("a",),
    ),
    (
        "lease_exclusiveness",
        Story().claims("a", 1).begins("a", 1).after(15).renews("a", 1).after(16).claims("b", 1, 2),
        lambda h: h.lease_exclusiveness(),
        1,
        ("a", "b"),
    ),
    (
        "lease_exclusiveness",
        Story().claims("a", 1).begins("a", 1).crashes("a").after(29.999).claims("b", 1, 2),
        lambda h: h.lease_exclusiveness(),
        1,
        ("a", "b"),
    ),
    (
        "lease_exclusiveness",
        Story().claims("a", 1).after(31).claims("b", 1, 2).after(1).renews("a", 1),
        lambda h: h.lease_exclusiveness(),
        1,
        ("a", "b"),
    ),
    (
        "lease_exclusiveness",
        Story().claims("a", 1).after(31).claims("b", 1, 2).after(1).finishes("a", 1),
        lambda h: h.lease_exclusiveness(),
        1,
        ("a", "b"),
    ),
    (
        "order_per_group",
        Story().publishes(1, 2).after(1).handles("a", 2, group="g").handles("b", 1, group="g"),
        lambda h: h.order_per_group("jobs"),
        2,
        ("world", "a", "b"),
    ),
    (
        "order_per_group",
        Story()
        .publishes(1, 2)
        .after(1)
        .handles("a", 1, group="g", priority=5)
        .handles("b", 2, group="g", priority=1),
        lambda h: h.order_per_group("jobs"),
        1,
        ("world", "a", "b"),
    ),
    (
        "order_per_key",
        Story()
        .claims("a", 1)
        .claims("a", 2)
        .begins("a", 2, key="k")
        .ends("a", 2, key="k")
        .begins("a", 1, key="k"),
        lambda h: h.order_per_key(),
        1,
        ("a",),
    ),
    (
        "never_before_due",
        Story().publishes(1).handles("a", 1, due=START + MS),
        lambda h: h.never_before_due(),
        1,
        ("world", "a"),
    ),
    (
        "never_before_due",
        Story().claims("a", 1).retries("a", 1, delay=10).after(9.999).claims("b", 1, 2),
        lambda h: h.never_before_due(),
        1,
        ("a", "b"),
    ),
]
"""Rule, run, check, the row that it is about, and the instances."""


@pytest.mark.parametrize(
    ("rule", "story", "check", "id", "instances"),
    BREAKS,
    ids=[f"{n}-{rule}" for n, (rule, *_) in enumerate(BREAKS)],
)
def test_a_broken_rule_is_found_and_told(
    rule: str, story: Story, check: Any, id: int, instances: tuple[str, ...]
) -> None:
    with pytest.raises(InvariantViolation) as caught:
        check(story.history)
    error = caught.value
    assert (error.rule, error.queue, error.id) == (rule, "jobs", id)
    assert error.instances == instances
    assert all(event in story.events for event in error.events)
    text = str(error)
    assert text.startswith(f"{rule}: row {id} of queue 'jobs' at ")
    assert all(repr(name) in text for name in instances)
    marked = [line for line in text.splitlines() if line.startswith(">")]
    assert len(marked) == len(error.events) >= 1


OTHER_CHECKS: dict[str, Callable[[History], object]] = {
    "none_settled_twice": lambda h: h.none_settled_twice(),
    "lease_exclusiveness": lambda h: h.lease_exclusiveness(),
    "one_in_work_per_row": lambda h: h.one_in_work_per_row(),
    "one_in_work_per_group": lambda h: h.one_in_work_per_group("jobs"),
    "one_in_work_per_key": lambda h: h.one_in_work_per_key(),
    "order_per_group": lambda h: h.order_per_group("jobs"),
    "order_per_key": lambda h: h.order_per_key(),
    "never_before_due": lambda h: h.never_before_due(),
    "attempts": lambda h: h.attempts(),
}


@pytest.mark.parametrize(
    ("rule", "story"),
    [(rule, story) for rule, story, *_ in BREAKS],
    ids=[f"{n}-{rule}" for n, (rule, *_) in enumerate(BREAKS)],
)
def test_just_that_rule_is_broken(rule: str, story: Story) -> None:
    for name, check in OTHER_CHECKS.items():
        # A second finish is one more claim too many as well, and an overtaken key is no FIFO group.
        if name != rule and (rule, name) not in ALSO:
            check(story.history)


ALSO = {
    ("caps", "attempts"),
    ("none_settled_twice", "attempts"),
    ("one_in_work_per_row", "one_in_work_per_group"),
    ("one_in_work_per_key", "one_in_work_per_group"),
}
"""A story that breaks the first breaks the second too."""


RIGHT: dict[str, Story] = {
    "plain": Story().publishes(1, 2).handles("a", 1).handles("b", 2),
    "an id used again": Story().publishes(1).handles("a", 1).publishes(1).handles("a", 1),
    "an id used again, without publish": Story().handles("a", 1).after(1).handles("b", 1),
    "an id used again, after a settlement whose answer was lost": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .publishes(1)
    .claims("b", 1)
    .begins("b", 1)
    .settles_unheard("a", 1)
    .ends("b", 1)
    .finishes("b", 1),
    "an id used again, published late": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .settles_unheard("a", 1)
    .claims("b", 1)
    .publishes(1)
    .finishes("b", 1),
    "an id used again, of a row that nobody knew of": Story()
    ._add(Unsure, "a", queue="", text="a row may be there")
    .handles("a", 1)
    .publishes(1)
    .claims("b", 1, 2)
    .begins("b", 1, 2)
    .ends("b", 1, 2)
    .finishes("b", 1, 2),
    "an id used again, after a crash at the settlement": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .crashes("a")
    .publishes(1)
    .handles("b", 1),
    "an id used again by a row that nobody knows of, after an answer that was lost": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .may_have_published()
    .hears_nothing("a", 1)
    .handles("a", 1),
    "an id used again by a row that nobody knows of, after a crash at the settlement": Story()
    .publishes(1)
    .may_have_published()
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .crashes("a")
    .handles("b", 1),
    "an id used again by what a handler published, which heard no answer": Story()
    .publishes(1, 2)
    .handles("a", 1)
    .claims("a", 2)
    .begins("a", 2)
    .ends("a", 2, outcome="OutcomeUnknownError")
    .retries("a", 2)
    .handles("a", 1)
    .handles("a", 2, 2),
    "an id used again by what a handler published, which was killed": Story()
    .publishes(1, 2)
    .handles("a", 1)
    .claims("a", 2)
    .begins("a", 2)
    .crashes("a")
    .handles("b", 1)
    .after(30)
    .handles("b", 2, 2),
    "an id used again by what was published within a commit whose answer was lost": Story()
    .publishes(1, 2)
    .handles("a", 2)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .settles_unheard("a", 1)
    .handles("a", 2),
    "a settlement whose answer was lost with the session that held the row": Story()
    .publishes(1)
    .claims("a", 1, lease=None)
    .begins("a", 1)
    .ends("a", 1)
    .hears_nothing("a", 1),
    "its publication is logged late": Story().claims("a", 1).publishes(1).finishes("a", 1),
    "a crash": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .crashes("a")
    .after(30)
    .handles("b", 1, 2),
    "a crash after the settlement": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1)
    .crashes("a"),
    "a crash after a claim that nobody heard of": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .crashes("a")
    .after(90)
    .handles("b", 1, 3),
    "given back": Story().publishes(1).claims("a", 1).gives_back("a", 1).handles("b", 1, 1),
    "a takeover": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .after(27)
    .ends("a", 1, outcome="lost")
    .after(3)
    .handles("b", 1, 2),
    "a retry that was written before anybody could say so": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1, outcome="retry")
    .claims("b", 1, 2)
    .retries("a", 1)
    .begins("b", 1, 2)
    .ends("b", 1, 2)
    .finishes("b", 1, 2),
    "a connection that was cut, which takes a moment to be noticed": Story()
    .publishes(1)
    .claims("a", 1, lease=None)
    .begins("a", 1)
    .is_cut("a")
    .claims("b", 1, lease=None)
    .begins("b", 1)
    .after(1)
    .loses("a", 1)
    .ends("a", 1, outcome="lost")
    .ends("b", 1)
    .finishes("b", 1),
    "handed out again at once, by a host whose clock is behind": Story()
    .publishes(1)
    .claims("a", 1)
    .begins("a", 1)
    .ends("a", 1, outcome="retry")
    .retries("a", 1, due=0.9)
    .handles("b", 1, 2),
    "put back from the dead": Story()
    .publishes(1)
    .claims("a", 1)
    .moves("a", 1)
    .after(5)
    .handles("a", 1, 1),
    "put off": Story()
    .publishes(1, 2)
    .after(1)
    .claims("a", 1)
    .begins("a", 1, group="g")
    .ends("a", 1, outcome="retry", group="g")
    .retries("a", 1, delay=10)
    .handles("b", 2, group="g")
    .after(9)
    .handles("b", 1, 2, group="g", due=START + s(11)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_happen_passes(name: str) -> None:
    RIGHT[name].history.one_in_work_per_group("jobs").order_per_group("jobs").check_all()


def test_an_id_that_is_free_again_may_come_back_as_a_dead_letter() -> None:
    story = Story()
    for _ in range(2):
        story.after(1).publishes(1).claims("a", 1).moves("a", 1)
        dead: dict[str, Any] = {"queue": "dead", "id": 1, "attempt": 2}
        story._add(events.Claimed, "a", locked_until=None, **dead)
        story._add(events.Finished, "a", outcome="ack", **dead)
    History(story.events).check_all()
    story._add(events.Claimed, "b", locked_until=None, **dead)
    with pytest.raises(InvariantViolation, match="claimed after it was finished"):
        History(story.events).check_all()


def test_a_row_that_nobody_knew_of_excuses_no_claim_of_one_that_was_finished() -> None:
    story = (
        Story()
        ._add(Unsure, "a", queue="", text="a row may be there")
        .publishes(1)
        .handles("a", 1)
        .claims("b", 1, 2)
    )
    with pytest.raises(InvariantViolation, match="claimed after it was finished"):
        story.history.none_settled_twice()


def test_a_long_row_is_told_in_part() -> None:
    story = Story().publishes(1).claims("a", 1)
    for _ in range(200):
        story.after(15).renews("a", 1)
    with pytest.raises(InvariantViolation) as caught:
        story.finishes("a", 1).after(1).claims("b", 1, 2).history.none_settled_twice()
    text = str(caught.value)
    assert len(text.splitlines()) < 30
    assert text.count("\n>") == 2
    assert "…" in text


# Real runs


class Changes(Inbox, table="history_changes"):
    id: int = role.id(generated=True)
    target: str = role.group(fifo=True)
    priority: int = role.priority(default=3)
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Postings(Inbox, table="history_postings"):
    id: int = role.id(generated=True)
    account: str = role.partition_key()
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


CHANGES = InboxQueue(Changes, "changes", str)
POSTINGS = InboxQueue(Postings, "postings", str)


async def create_schema(db: Database) -> None:
    dialect = get_dialect(db.dialect)
    for row in (Changes, Postings):
        for statement in create_table(dialect, row.spec):
            await db.execute(
                re.sub("^CREATE (TABLE|INDEX) ", r"CREATE \1 IF NOT EXISTS ", statement)
            )


def service(database: Database, pause: float = 1.0) -> Service:
    @subscriber(CHANGES)
    async def change(message: str, delivery: Delivery) -> Outcome:
        await delivery.clock.sleep(pause)
        if message == "fails":
            raise RuntimeError(message)
        return retry_after(s(2 * pause)) if message == "later" and delivery.attempt == 1 else ack()

    @subscriber(POSTINGS)
    async def post(message: str, delivery: Delivery) -> None:
        await delivery.clock.sleep(pause)

    app = Service("history", Broker(database))
    app.on_startup(create_schema)
    app.include(change, max_attempts=3, dead_letter="changes.dead")
    app.include(post, workers_by_key=3)
    return app


MESSAGES = ["one", "later", "fails", "two"]


async def test_a_run_in_virtual_time_passes_every_check(inbox_world: Any) -> None:
    world: World = await inbox_world(service)
    await world.start("a")
    await world.start("b", clock_offset=s(0.2))
    for n, message in enumerate(MESSAGES):
        await world.publish(CHANGES, message, priority=n % 2)
        await world.publish(POSTINGS, message, account="even" if n % 2 else "odd")
        await world.publish(POSTINGS, message, account="even")
    await world.advance(s(2.5))
    await world.crash("a")
    await world.drain()
    history = world.history.check_all(left=[])
    assert history.queues["changes"].is_fifo
    assert history.queues["postings"].has_keys
    assert history.queues["changes"].cap == 3
    for kind in (Began, Crashed, events.DeadLettered, events.Retried, events.Finished):
        assert any(isinstance(moment.event, kind) for moment in history.moments), kind
    History.of(world.timeline).check_all()
    assert str(history.timeline) == str(world.timeline)


@contextmanager
def logged(path: Path) -> Iterator[None]:
    handler = HistoryHandler(path)
    logger = logging.getLogger("inboxkit")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_real_runs_log_is_read_and_passes_every_check(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "run.jsonl"
    url = f"sqlite:///{tmp_path / 'real.db'}"

    async def main() -> Service:
        async with Database(url) as database:
            app = service(database, pause=0.001)
            note_calls(app)
            done = anyio.Event()

            async def watch(delivery: Delivery[Any, Any], call_next: Any) -> Any:
                outcome = await call_next(delivery)
                if delivery.message == "last":
                    done.set()
                return outcome

            app.use(watch)
            async with app.running():
                for message in ("one", "later", "last"):
                    await app.broker.publish(CHANGES, message)
                    await app.broker.publish(POSTINGS, message, account="x")
                await done.wait()
        return app

    with logged(path):
        app = anyio.run(main, backend=backend)
    history = History.from_log(path, service=app)
    kinds = {type(moment.event) for moment in history.moments}
    assert {events.Started, events.Published, Began, events.Finished, events.Stopped} <= kinds
    assert {moment.event.instance for moment in history.moments} == {"history"}
    with closing(sqlite3.connect(tmp_path / "real.db")) as connection:
        left = {
            queue: [id for (id,) in connection.execute(f"SELECT id FROM history_{queue}")]
            for queue in ("changes", "postings")
        }
    history.check_all(left=left)
    with path.open("a") as file:
        file.write('{"event": "Finis')  # killed while it wrote
    assert len(History.from_log(path)) == len(history)


def write_log(path: Path, *written: events.Event, process: int = 1) -> None:
    from inboxkit_testing.history_log import _line

    at = START.timestamp()
    path.write_text("".join(_line(event, at, f"host:{process}") for event in written))


def test_every_value_comes_back_from_a_log(tmp_path: Path) -> None:
    story = Story().publishes(1).handles("a", 1, key=b"\x01\xff", due=START).crashes("a")
    story.retries("a", UUID(int=7), delay=1.5)  # type: ignore[arg-type]
    write_log(tmp_path / "log", *story.events)
    history = History.from_log(tmp_path / "log")
    assert [moment.event for moment in history.moments] == story.events


def test_processes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for number in (1, 2):
        story = Story().claims("jobs", 1).begins("jobs", 1)
        write_log(tmp_path / f"{number}", *story.events, process=number)
    history = History.from_log(tmp_path / "1", tmp_path / "2")
    with pytest.raises(InvariantViolation) as caught:
        history.one_in_work_per_row()
    assert caught.value.instances == ("jobs (host:1)", "jobs (host:2)")


def test_logs_that_cannot_be_judged_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, *Story().publishes(1).finishes("a", 1).events)
    with pytest.raises(ValueError, match=r"no claims: set .* to DEBUG"):
        History.from_log(path)
    path.write_text("hello\n")
    with pytest.raises(ValueError, match=r"log, line 1: not an event"):
        History.from_log(path)
    with pytest.raises(ValueError, match="path of a log"):
        History.from_log()


def test_a_log_that_is_not_written_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = HistoryHandler(tmp_path / "log")
    handler.close()
    record = logging.makeLogRecord({"event": Story().publishes(1).events[0]})
    handler.emit(record)
    handler.emit(logging.makeLogRecord({}))


def back_off(*, then: str, restarts: bool = False) -> Story:
    """Instance a puts a row off for ten seconds; somebody claims it after five."""
    story = Story().claims("a", 1).retries("a", 1, delay=10).after(5)
    if restarts:
        story._add(events.Started, "a", queue="")
    return story.claims(then, 1, 2)


@pytest.mark.parametrize(
    ("keeps_back_off", "story", "is_right"),
    [
        (True, back_off(then="a"), False),
        (True, back_off(then="b"), False),
        (True, back_off(then="a", restarts=True), False),
        (False, back_off(then="a"), False),
        (False, back_off(then="b"), True),
        (False, back_off(then="a", restarts=True), True),
    ],
)
def test_a_back_off_that_no_column_keeps_binds_the_instance_alone(
    keeps_back_off: bool, story: Story, is_right: bool
) -> None:
    """Its subscription rests; others, and itself after a start, know nothing of it."""
    history = story.history
    history.queues = {"jobs": QueueFacts("t", "jobs", False, False, None, keeps_back_off)}
    if is_right:
        history.never_before_due()
    else:
        with pytest.raises(InvariantViolation, match=r"it was claimed at .* and is due at"):
            history.never_before_due()


class Bare(Inbox, table="t"):
    id: int = role.id()
    payload: bytes = role.payload()


class Due(Bare, table="t"):
    retry_after: datetime | None = role.retry_after()


class DueFifo(Due, table="t"):
    name: str = role.group(fifo=True)


class Leased(Bare, table="t"):
    locked_until: datetime | None = role.locked_until()


class Keyed(Bare, table="t", advisory_lock="t-{id}"):
    pass


class KeyedDue(Due, table="t", advisory_lock="t-{id}"):
    pass


@pytest.mark.parametrize(
    ("row", "keeps_back_off"),
    [
        (Bare, False),
        (Due, True),
        (DueFifo, False),
        (Leased, True),
        (Keyed, False),
        (KeyedDue, True),
    ],
)
def test_which_tables_keep_a_back_off(row: Any, keeps_back_off: bool) -> None:
    @subscriber(InboxQueue(row, "jobs", bytes))
    async def handle(message: bytes) -> None:
        """Never called."""

    app = Service("jobs", Broker(Database("postgresql://nowhere/none")))
    app.include(handle)
    assert queues_of(app)["jobs"].keeps_back_off is keeps_back_off
