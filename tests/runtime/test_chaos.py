"""Several processes, random faults and crashes: nothing lost, nothing settled twice, never two at a row."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import anyio
import pytest
from runtime_kit import (
    BARE,
    FIFO,
    JOBS,
    KEYED,
    SECOND,
    Work,
    another,
    count,
    create,
    killed,
    observed,
    serve,
)

from inboxkit import (
    Database,
    Delivery,
    InboxQueue,
    Outcome,
    ack,
    drop,
    events,
    insert_rows,
    retry,
    retry_after,
)
from inboxkit_testing import ObservedDatabase, Timeline, VirtualClock
from inboxkit_testing.faults import Operation

SCRIPTS = ("claim", "settle", "renew", "settle check")


class Chaos:
    """What handlers of all processes do, and whether they met each other."""

    def __init__(self, random: Random, queue: InboxQueue[Any, Any], lease: timedelta) -> None:
        self.random = random
        self.queue = queue
        self.lease = lease
        self.live: list[tuple[str, Work, Delivery]] = []
        self.dead: set[str] = set()
        self.met: list[str] = []

    def handler(self, process: str) -> Any:
        async def handle(work: Work, delivery: Delivery) -> Outcome:
            entry = (process, work, delivery)
            for other, its, theirs in self.live:
                is_over = other in self.dead or theirs.lost.is_set()
                is_one = its == work or delivery.queue.spec.fifo
                if is_one and not is_over:
                    self.met.append(f"{work} in {process} beside {its} in {other}")
            self.live.append(entry)
            try:
                longest = self.lease.total_seconds()
                await delivery.clock.sleep(
                    self.random.choice([0, 0.1, 0.5, longest / 2, longest, 3 * longest])
                )
                return self.outcome()
            finally:
                self.live.remove(entry)

        return handle

    def outcome(self) -> Outcome:
        chance = self.random.random()
        if chance < 0.1:
            return retry()
        if chance < 0.2:
            return retry_after(self.random.choice([0, 1, 3]) * SECOND)
        if chance < 0.3:
            raise ValueError("no luck")
        return drop("no luck") if chance < 0.35 else ack()

    def plant(self, database: ObservedDatabase) -> None:
        """Some faults that come after some statements."""
        for _ in range(self.random.randrange(6)):
            matching = self._nth(self.random.choice(SCRIPTS), self.random.randrange(1, 12))
            chance, times = self.random.random(), self.random.randrange(1, 4)
            if chance < 0.4:
                database.faults.refuse(matching(opens=True), times=times)
            elif chance < 0.8:
                database.faults.lose_reply(matching(opens=False), times=times)
            else:
                database.faults.delay(matching(opens=True), self.random.choice([0.5, 2, 10]))

    def _nth(self, script: str, nth: int) -> Any:
        def make(*, opens: bool) -> Any:
            left = [nth]

            def matches(operation: Operation) -> bool:
                at_its_end = operation.opens_script if opens else operation.ends_script
                if operation.script != script or not at_its_end:
                    return False
                left[0] -= 1
                return left[0] <= 0

            return matches

        return make


@pytest.mark.parametrize("queue", [JOBS, BARE, FIFO, KEYED], ids=lambda queue: queue.name)
async def test_processes_that_fail_and_die_lose_nothing_and_never_meet(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    queue: InboxQueue[Any, Any],
    inbox_backend: str,
) -> None:
    seed = f"{queue.name} {inbox_backend} {inbox_database.dialect}"
    random = Random(seed)
    chaos = Chaos(random, queue, random.choice([1, 5, 30]) * SECOND)
    await create(inbox_database, queue.row)
    columns: dict[str, Any] = {"name": queue.name} if queue.spec.group is not None else {}
    async with inbox_database.transaction() as tx:
        for n in range(15):
            if queue is KEYED:
                columns = {"account": f"account {n % 3}"}
            await insert_rows(tx, queue.row.of(Work(n), **columns))  # type: ignore[union-attr]

    async def live_and_die(name: str) -> None:
        life = 0
        while virtual_clock.monotonic() < 60:
            life += 1
            process = f"{name} {life}"
            database = another(inbox_database, process)
            async with database:
                chaos.plant(observed(database))
                app = serve(
                    database,
                    queue,
                    chaos.handler(process),
                    lease=chaos.lease,
                    name=process,
                    drain_timeout=random.choice([0, 1, 10]) * SECOND,
                    workers=random.choice([1, 2, 5]),
                )
                if random.random() < 0.4:
                    async with killed(app):
                        await virtual_clock.sleep(random.uniform(1, 30))
                        chaos.dead.add(process)
                else:
                    async with app.running():
                        await virtual_clock.sleep(random.uniform(1, 30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live_and_die, "one")
        tasks.start_soon(live_and_die, "two")
    last = serve(inbox_database, queue, chaos.handler("last"), lease=chaos.lease, name="last")
    async with last.running():
        for _ in range(60):
            await virtual_clock.sleep(60)
            if not await count(inbox_database, queue.row):
                break
    assert await count(inbox_database, queue.row) == 0, seed
    assert chaos.met == [], seed
    finished = Counter(event.id for event in timeline.of(events.Finished))  # type: ignore[attr-defined]
    assert set(finished.values()) <= {1}, seed
