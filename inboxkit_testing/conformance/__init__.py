"""The conformance suite: what every claim form does on every database, as tests of one's own.

For whoever brings a database to inboxkit (a driver, a server that speaks a known dialect, a table that is
made in another way) or a claim form. A test class says which kind of form it is, and its fixture
`bench` where it runs:

    import pytest

    from inboxkit_testing.conformance import DatabaseBench, LeaseConformance


    class TestLease(LeaseConformance):
        @pytest.fixture
        def bench(self, tmp_path):
            return DatabaseBench(f"sqlite:///{tmp_path}/jobs.db", "lease")

That is all: 35 tests run, on asyncio and on trio (``--inbox-backend`` chooses). The URL may be that of any
server. A driver of one's own comes in by the port `inboxkit.abc.Driver`:

    clock = ManualClock()
    database = Database.over(MyDriver(..., clock=clock), clock=clock, pool_size=20)
    return DatabaseBench(database, "lease")

The same with `RowLockConformance` and `AdvisoryLockConformance`, as far as the database is to serve these
forms. `ClaimFormConformance` asks for no FIFO groups and no keys. Where tables are made by other
statements, override `DatabaseBench.ddl`.

A claim form of one's own is any `inboxkit.abc.ClaimForm`. On one of the databases that are known its bench
says how it is opened:

    class MyBench(DatabaseBench):
        def open(self, group, cap=None, step=0):
            return MyForm(self.lender, self.spec, group=group, cap=cap, lease=LEASE)


    class TestMyForm(LeaseConformance):
        @pytest.fixture
        def bench(self, tmp_path):
            return MyBench(f"sqlite:///{tmp_path}/jobs.db", "lease")

On anything else it derives from `Bench`, and says besides how the table is made, read and written behind
the form's back; `ModelBench`, the rules themselves in memory, does so in 50 lines. What the form counts
otherwise than ours is told by `Rules`.

The fixture may use other fixtures, and have parameters. The bench is entered in the test's loop. Time is the
bench's `clock`, which stands where the test puts it; the loop runs in real time. Tests of one's own stand
beside the others:

    class TestMyForm(LeaseConformance):
        ...

        @on_bench
        async def test_group_of_another_case_is_another_group(self, b: Bench) -> None:
            await b.create()
            await b.insert({"grp": "A"})
            assert await b.claim(group="a") == []

Needs the extra ``testing``.
"""

from __future__ import annotations

from .attempts import AttemptTests
from .bench import FINISH, GIVE_BACK, LEASE, SECOND, TO_DEAD, Bench, hold, ids, postpone
from .claims import ClaimTests
from .fifo import FifoTests
from .keys import KeyTests
from .manual_clock import START, ManualClock
from .on_database import DatabaseBench
from .on_model import ModelBench
from .rules import RULES, Rules
from .settlements import SettlementTests
from .suite import Conformance, RunOnBench, on_bench

__all__ = [
    "FINISH",
    "GIVE_BACK",
    "LEASE",
    "RULES",
    "SECOND",
    "START",
    "TO_DEAD",
    "AdvisoryLockConformance",
    "Bench",
    "ClaimFormConformance",
    "Conformance",
    "DatabaseBench",
    "LeaseConformance",
    "ManualClock",
    "ModelBench",
    "RowLockConformance",
    "Rules",
    "RunOnBench",
    "hold",
    "ids",
    "on_bench",
    "postpone",
]


class ClaimFormConformance(ClaimTests, SettlementTests, AttemptTests):
    """What every claim form does: 27 tests, without FIFO groups and keys."""


class LeaseConformance(ClaimFormConformance, FifoTests):
    """What a form does whose hold is an expiry in the row: 35 tests."""


class RowLockConformance(ClaimFormConformance, FifoTests):
    """What a form does whose hold is the row's lock in a session: 35 tests."""


class AdvisoryLockConformance(ClaimFormConformance, KeyTests):
    """What a form does whose hold is a key, made of the row, in a session: 30 tests."""
