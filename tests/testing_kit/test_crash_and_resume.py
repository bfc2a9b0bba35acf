"""What the machine finds in small services with one fault each, and what it says of it."""

from __future__ import annotations

import itertools
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from inboxkit import Broker, Database, DeclarationError, InboxQueue, Service
from inboxkit_testing import (
    CrashAndResume,
    InvariantViolation,
    World,
    check_crash_and_resume,
    traffic,
)
from inboxkit_testing.stateful.order import Order as Choices
from inboxkit_testing.stateful.running import run_machine
from testing_kit import resuming_services as shop
from testing_kit.resuming_services import FAULTY, ORDERS, BillsTwice, Order, Shop, TellsTooEarly

GENERATE = settings(
    max_examples=300, database=None, phases=[Phase.generate], report_multiple_bugs=False
)
BROKEN_RULES = {"Poisoned": "nothing_lost", "WorksOnWithoutItsLease": "one_in_work_per_row"}


def here(kind: type[CrashAndResume]) -> type[Any]:
    """The machine in one place, to be cheap; with the seed, always the same examples."""
    attributes = {"traffic": kind.traffic, "database": "sqlite-inloop", "backend": "asyncio"}
    made: Any = type(kind.__name__, (kind,), {**attributes, "__module__": kind.__module__})
    return seed(1)(made)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", FAULTY)
def test_a_fault_is_found(kind: type[Shop]) -> None:
    with pytest.raises(AssertionError) as caught:
        run_machine(here(kind), GENERATE)
    rule = getattr(caught.value, "rule", None)
    assert rule == BROKEN_RULES.get(kind.__name__)
    assert isinstance(caught.value, InvariantViolation) == (rule is not None)


def test_a_sound_service_passes() -> None:
    run_machine(here(Shop), settings(GENERATE, max_examples=25))


def source_of(error: BaseException) -> str:
    notes = "\n".join(error.__notes__)
    _, _, case = notes.partition("The same as a test, on ")
    lines = case.partition("\n\n")[2].splitlines()
    end = next(n for n, line in enumerate(lines) if line.startswith("    run("))
    return "\n".join(lines[: end + 1])


@pytest.mark.parametrize(
    "is_shrunk",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif("CI" not in os.environ, reason="half a minute: in CI")
        ),
    ],
)
def test_what_was_found_is_shown_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shrunk: bool
) -> None:
    phases = [Phase.generate, Phase.shrink] if is_shrunk else [Phase.generate]
    machine = here(BillsTwice)
    monkeypatch.setattr(shop, "BillsTwice", machine)
    with pytest.raises(AssertionError) as caught:
        run_machine(machine, settings(GENERATE, phases=phases))
    told = "\n".join(caught.value.__notes__)
    assert "state.begin(" in told
    assert "the queue kept its rules; this was not right: AssertionError" in told
    assert "row 1   handler begins" in told
    source = source_of(caught.value)
    if is_shrunk:
        assert source.count("world.publish") <= 2
        assert len(source.splitlines()) < 35
    test = compiled(source)
    with pytest.raises(AssertionError) as again:
        test(tmp_path)
    assert not isinstance(again.value, InvariantViolation)
    # The service is mended.
    monkeypatch.setattr(machine, "transactional", True)
    monkeypatch.setattr(machine, "handle", Shop.handle)
    (tmp_path / "inbox.db").unlink()
    test(tmp_path)


def compiled(source: str) -> Callable[[Path], None]:
    module = types.ModuleType("pasted")
    exec(compile(source, "pasted.py", "exec"), vars(module))
    test: Callable[[Path], None] = module.__dict__["test_crash_and_resume"]
    return test


def service(database: Database) -> Service:
    return TellsTooEarly().service(database)


async def setup(database: Database) -> None:
    await shop.create_schema(database)


async def no_bills(world: World) -> None:
    assert not await world.database.fetch_value("SELECT count(*) FROM bills")


def test_a_plain_test_can_call_it(
    inbox_database: Database, inbox_backend: Any, tmp_path: Path
) -> None:
    rows = [traffic(ORDERS, st.builds(Order, st.integers(1, 9)))]
    named: Any = {"traffic": rows, "setup": setup, "backend": inbox_backend}
    check_crash_and_resume(
        service, inbox_database, settings=settings(GENERATE, max_examples=2), **named
    )
    chosen = settings(GENERATE, max_examples=20)
    with pytest.raises(AssertionError) as caught:
        check_crash_and_resume(service, effects=no_bills, settings=chosen, **named)
    with pytest.raises(AssertionError, match="assert not"):
        compiled(source_of(caught.value))(tmp_path)


test_a_plain_test_can_call_it = pytest.mark.parametrize("inbox_db", ["sqlite"])(
    test_a_plain_test_can_call_it
)


def test_what_differs_each_time_is_told() -> None:
    chance = itertools.count()

    class Chancy(Shop):
        traffic = Shop.traffic

        async def check(self, world: World) -> None:
            assert next(chance) != 2

    with pytest.raises(Flaky) as caught:
        run_machine(here(Chancy), settings(GENERATE, max_examples=5))
    assert "uuid4" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"traffic": ()}, "has no traffic"),
        ({"traffic": (ORDERS,)}, "expected what traffic"),
        ({"check": lambda self, world: None}, "check must be an async function"),
        ({"instances": 0}, "a number from 1 to 4"),
        ({"service": CrashAndResume.service}, "needs `def service"),
        (
            {"service": lambda self, database: Service("s", Broker("sqlite:///:memory:"))},
            "another database",
        ),
        ({"service": lambda self, database: Service("s", Broker(database))}, "no subscription"),
        ({"database": "sqlite-memory"}, "lives in one connection"),
    ],
)
def test_mistakes_are_told_before_anything_runs(members: dict[str, Any], message: str) -> None:
    kind = here(type("Mistaken", (Shop,), {"traffic": Shop.traffic, **members}))
    for name in ("traffic", "database"):
        if name in members:
            setattr(kind, name, members[name])
    with pytest.raises(DeclarationError, match=message):
        run_machine(kind, GENERATE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: traffic("orders"), "takes an InboxQueue"),
        (lambda: traffic(InboxQueue(shop.OrderRow, "any")), "does not say what its messages are"),
        (lambda: traffic(ORDERS, 3), "a strategy or a function"),
        (lambda: traffic(ORDERS, due=st.none()), "retry_after"),
        (lambda: traffic(ORDERS, group=st.just("a")), "leave group out"),
        (lambda: traffic(ORDERS, colour="red"), "no column 'colour'"),
    ],
)
def test_mistakes_in_traffic_are_told(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()


async def test_an_async_test_is_no_place_for_it(virtual_clock: Any) -> None:
    with pytest.raises(DeclarationError, match="not in an async one"):
        run_machine(here(Shop), GENERATE)


def test_settings_of_the_class_and_of_its_test_case_count() -> None:
    assert Shop.__test__ is False
    assert Shop.TestCase is Shop.TestCase
    assert Shop.TestCase.settings.deadline is None

    @settings(max_examples=7)
    class Few(Shop):
        traffic = Shop.traffic

    assert Few.TestCase.settings.max_examples == 7


def test_an_integer_is_a_list_of_choices() -> None:
    order = Choices()
    order.begin()
    order.of_step(1 + 2 * (0 + 3 * 2))
    assert [order.choose(2), order.choose(3), order.choose(4), order.choose(2)] == [1, 0, 2, 0]
    assert order.schedule == [1, 0, 2]
