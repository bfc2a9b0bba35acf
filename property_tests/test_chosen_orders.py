"""Hypothesis chooses at the gate: a race is found, and shrinks to the schedule with the fewest choices."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from inboxkit.database import Database
from inboxkit_testing import StatementGate, VirtualClock, open_test_database, run
from inboxkit_testing.backends import BackendName, Choose

FIND = settings(
    max_examples=60, database=None, derandomize=True, phases=(Phase.generate, Phase.shrink)
)


async def total(database: Database) -> int:
    """What two tasks make of 0 that each add one to it, by a read and a write."""

    async def add() -> None:
        n = await database.fetch_value("SELECT n FROM t")
        await database.execute("UPDATE t SET n = $1", n + 1)

    await database.execute("CREATE TABLE IF NOT EXISTS t (n integer)")
    await database.execute("DELETE FROM t")
    await database.execute("INSERT INTO t VALUES (0)")
    # Both have a connection of their own before they are let go.
    async with database.connection(), database.connection():
        pass
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add, name="a")
        tasks.start_soon(add, name="b")
    return int(await database.fetch_value("SELECT n FROM t"))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_race_shrinks_to_its_shortest_schedule(
    backend: BackendName, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = f"sqlite+inloop:///{tmp_path_factory.mktemp('gate') / 'kit.db'}"
    schedules: list[list[int]] = []

    @FIND
    @given(data=st.data())
    def race(data: st.DataObject) -> None:
        gate = StatementGate(lambda count: data.draw(st.integers(0, count - 1)))
        clock = VirtualClock(gate=gate)

        async def main() -> int:
            async with open_test_database(url, clock=clock) as database:
                return await total(database)

        found = run(main, backend=backend, clock=clock)
        if found != 2:
            schedules.append(gate.schedule)
        assert found == 2

    with pytest.raises(AssertionError):
        race()
    # Of all ways into the race the last that was tried is the simplest: one choice that is not zero.
    assert sum(schedules[-1]) == 1
    assert schedules[-1][-1] == 0


class TestAsync:
    """The same in an async test, whose clock is there before Hypothesis's data is."""

    @pytest.fixture
    def virtual_clock(self) -> VirtualClock:
        return VirtualClock(gate=StatementGate())

    @settings(max_examples=20)
    @given(data=st.data())
    @pytest.mark.parametrize("inbox_db", ["sqlite-inloop"])
    async def test_a_chooser_may_come_late(
        self, data: st.DataObject, virtual_clock: VirtualClock, inbox_database: Database
    ) -> None:
        gate = virtual_clock.gate
        assert gate is not None
        drawn: list[int] = []

        def draw(count: int) -> int:
            drawn.append(data.draw(st.integers(0, count - 1)))
            return drawn[-1]

        before = gate.schedule
        choose: Choose = draw
        gate.choose_by(choose)
        found = await total(inbox_database)
        assert gate.schedule == before + drawn
        assert len(drawn) >= 2
        gate.choose_by([1, 1])
        again = await total(inbox_database)
        assert {found, again} <= {1, 2}
        assert gate.schedule[len(before) + len(drawn) :][:2] == [1, 1]
