"""`CrashAndResume.populate`, and what is told at once where a check cannot pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import initialize

from inboxkit import Database
from inboxkit.errors import DatabaseError, DeclarationError
from inboxkit_testing import World, check_crash_and_resume, traffic
from inboxkit_testing.stateful.running import run_machine
from testing_kit import resuming_services as shop
from testing_kit.resuming_services import ORDERS, Order, Shop, create_schema, total
from testing_kit.test_crash_and_resume import GENERATE, compiled, here, source_of

FEW = settings(GENERATE, max_examples=5)


async def begin_with_five(database: Database) -> None:
    await database.execute("INSERT INTO totals VALUES (5)")


class Populated(Shop):
    async def populate(self, database: Database) -> None:
        await begin_with_five(database)

    async def check(self, world: World) -> None:
        await super().check(world)
        assert await total(world) == 5


class PopulatedAndWrong(Populated):
    async def check(self, world: World) -> None:
        await super().check(world)
        assert not world.published


class FilledBySetup(Shop):
    async def setup(self, database: Database) -> None:
        await super().setup(database)
        await begin_with_five(database)


class PopulatedTooEarly(Populated):
    async def setup(self, database: Database) -> None:
        pass


class NeverRight(Shop):
    examples = 0

    def service(self, database: Database) -> Any:
        type(self).examples += 1
        return super().service(database)

    async def check(self, world: World) -> None:
        assert await total(world) == 5


class RightByItsOwnRule(NeverRight):
    @initialize()
    def five(self) -> None:
        self.do(into_totals)


async def into_totals(world: World) -> None:
    await begin_with_five(world.database)


def test_each_example_begins_with_these_rows(inbox_database: Database) -> None:
    run_machine(here(Populated), FEW)
    check_crash_and_resume(
        Populated().service,
        inbox_database,
        traffic=[traffic(ORDERS, Order)],
        setup=create_schema,
        populate=begin_with_five,
        effects=Populated().check,
        backend="asyncio",
        settings=FEW,
    )


def test_a_found_case_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = here(PopulatedAndWrong)
    monkeypatch.setattr(shop, "PopulatedAndWrong", machine, raising=False)
    monkeypatch.setattr(machine, "__module__", shop.__name__)
    with pytest.raises(AssertionError) as caught:
        run_machine(machine, settings(GENERATE, max_examples=50))
    source = source_of(caught.value)
    assert "await machine.setup(database)\n            await machine.populate(database)\n" in source
    with pytest.raises(AssertionError, match="published"):
        compiled(source)(tmp_path)
    monkeypatch.setattr(machine, "check", Populated.check)
    (tmp_path / "inbox.db").unlink()
    compiled(source)(tmp_path)


def test_rows_that_setup_writes_are_refused_since_they_would_be_lost(
    inbox_database: Database,
) -> None:
    where: Any = {"traffic": [traffic(ORDERS, Order)], "backend": "asyncio", "settings": FEW}
    machine = FilledBySetup()
    with pytest.raises(DeclarationError, match=r"setup wrote rows into 'totals'.*`populate`"):
        check_crash_and_resume(machine.service, inbox_database, setup=machine.setup, **where)
    check_crash_and_resume(machine.service, inbox_database, keep=["totals"], **where)


def test_tables_that_are_not_there_yet_are_told() -> None:
    with pytest.raises(DatabaseError) as caught:
        run_machine(here(PopulatedTooEarly), FEW)
    assert any("unless `setup` creates them" in note for note in caught.value.__notes__)


def test_a_check_that_never_passes_is_told_at_once() -> None:
    machine = here(NeverRight)
    with pytest.raises(AssertionError) as caught:
        run_machine(machine, FEW)
    assert any("Nothing was published and nothing failed" in n for n in caught.value.__notes__)
    assert machine.examples <= 4  # services made, not examples by the dozen


def test_a_rule_of_its_own_may_make_it_right() -> None:
    run_machine(here(RightByItsOwnRule), FEW)
