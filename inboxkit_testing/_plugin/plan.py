"""How one test of ours is run: its backend, its time, its deferred fixtures."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from inboxkit_testing._plugin import fixtures as fixtures_module
from inboxkit_testing._plugin.fixtures import Deferred, FixtureRun, is_async
from inboxkit_testing._plugin.seeds import is_in_real_time

if TYPE_CHECKING:
    from inboxkit_testing import Timeline, VirtualClock

__all__ = ["CLOCKS", "OPENED", "SHARED", "Plan", "current_plan"]

CLOCKS = ("virtual_clock", "frozen_clock")
"""The clock fixtures; a test names one of them or none."""
OPENED = "_inbox_opened"
"""Attribute of a fixture's function: the async one that replaces it inside a run."""
SHARED = "_inbox_shared_fixtures"
"""Attribute of a test under `@given`: its fixtures that all examples share, though it did not say so."""

_running: list[Plan] = []


def current_plan() -> Plan:
    """The plan of the test that is being called."""
    if not _running:
        raise RuntimeError(
            "this async test is run by the pytest plugin of inboxkit, and only by it"
        )
    return _running[-1]


class Plan:
    """Made when the item's set-up begins.

    Args:
        item: The test.
        is_given: Whether Hypothesis calls it, example by example: each is a run of its own, with
            clocks and fixtures of its own.
        seed: Chooses the order of its statements and tasks; None: they go as they come.
    """

    def __init__(self, item: pytest.Function, *, is_given: bool, seed: int | None) -> None:
        self.item = item
        self.seed = seed
        self.clock: VirtualClock | None = None
        """The time of the run that goes on; None: real time."""
        self.is_recorded = False
        """Whether runs are to leave a timeline."""
        self.timeline: Timeline | None = None
        """Of the run that goes on, or of the last."""
        self._is_given = is_given
        self._deferred: list[Deferred] = []
        _refuse_shared(item)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """While the test is called."""
        _running.append(self)
        try:
            yield
        finally:
            _running.pop()

    @contextlib.contextmanager
    def deferring(self, fixture: Any, request: Any) -> Iterator[None]:
        """While pytest, or another plugin, sets up a fixture: see that we do it if it needs the loop.

        The function is replaced by a sync one that only notes the fixture, so that other plugins see
        nothing to do.
        """
        original = fixture.func
        if fixture.scope != "function":
            _refuse_wide_async(fixture)
            yield
        elif self._is_deferred(fixture, request):
            if self in _running:
                pytest.fail(
                    f"the fixture {fixture.argname!r} needs the test's loop: name it as an argument of "
                    "the test, request.getfixturevalue() comes too late",
                    pytrace=False,
                )
            function = _bound(getattr(original, OPENED, original), request.instance)

            def note(**arguments: object) -> Deferred:
                deferred = Deferred(fixture.argname, function, arguments)
                self._deferred.append(deferred)
                return deferred

            fixture.func = note
            try:
                yield
            finally:
                fixture.func = original
        else:
            yield

    def _is_deferred(self, fixture: Any, request: Any) -> bool:
        if is_async(fixture.func) or hasattr(fixture.func, OPENED):
            return True
        if self._is_given and fixture.argname in CLOCKS:
            return True
        values = [request.getfixturevalue(name) for name in fixture.argnames]
        return any(isinstance(value, Deferred) for value in values)

    def run(
        self,
        test: Callable[..., Awaitable[object]],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> None:
        """Run the test, or one example of it, in a fresh loop."""
        __tracebackhide__ = True
        import anyio  # noqa: PLC0415 - only when a test runs

        from inboxkit_testing import recorded, run  # noqa: PLC0415 - only when a test runs

        failures: list[BaseException] = []
        backend: Any = self.item.funcargs["inbox_backend"]
        values = self._start_clock()
        fixtures = FixtureRun(self._deferred, values)

        async def main() -> None:
            __tracebackhide__ = True
            cancelled = anyio.get_cancelled_exc_class()
            try:
                await fixtures.call(test, args, kwargs, cancelled)
            except (cancelled, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - of pytest and Hypothesis too; no loop meets them
                failures.append(error)

        with recorded() if self.is_recorded else contextlib.nullcontext() as self.timeline:
            if self.clock is None:
                anyio.run(main, backend=backend)
            else:
                run(main, backend=backend, clock=self.clock, seed=self.seed)
        if failures:
            raise failures[0].with_traceback(_without_ours(failures[0].__traceback__))

    def _start_clock(self) -> dict[Deferred, object]:
        """Set the run's clock, and return what was made of the deferred fixtures for that."""
        from inboxkit_testing import VirtualClock  # noqa: PLC0415 - only when a test runs

        for name in CLOCKS:
            if name in self.item.funcargs:
                found: Any = self.item.funcargs[name]
                if not isinstance(found, Deferred):
                    self.clock = found
                    return {}
                self.clock = clock = found.function(**found.arguments)
                return {found: clock}
        self.clock = None if is_in_real_time(self.item) else VirtualClock()
        return {}


def _refuse_shared(item: pytest.Function) -> None:
    shared = getattr(item.obj, SHARED, ())
    if shared:
        pytest.fail(
            f"all examples of @given would share the fixture {shared[0]!r}, since it needs no loop: "
            "make what it makes inside the test, or, where sharing is right, say so with "
            "@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])",
            pytrace=False,
        )


def _refuse_wide_async(fixture: Any) -> None:
    # pytest_asyncio.fixture marks what it is to run itself, in a loop that lives as long.
    if is_async(fixture.func) and not hasattr(fixture.func, "_force_asyncio_fixture"):
        pytest.fail(
            f"the async fixture {fixture.argname!r} has the scope {fixture.scope!r}: each test of "
            "inboxkit has a loop of its own, so its async fixtures must have the scope 'function'",
            pytrace=False,
        )


def _bound(function: Callable[..., Any], instance: object) -> Callable[..., Any]:
    """A fixture's method belongs to the test's own instance."""
    if isinstance(function, types.MethodType) and type(function.__self__) is type(instance):
        bound: Callable[..., Any] = function.__func__.__get__(instance)
        return bound
    return function


def _without_ours(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The part that begins in the test or the fixture."""
    begin, each = traceback, traceback
    while each is not None:
        if each.tb_frame.f_code.co_filename == fixtures_module.__file__:
            begin = each.tb_next or begin
        each = each.tb_next
    return begin
