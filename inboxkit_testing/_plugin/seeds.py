"""Which seeds a test runs with, and how one test is run once for each of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.runner import call_and_report

from inboxkit_testing._plugin.options import Options

__all__ = ["explore", "is_in_real_time", "seeds_of"]


def seeds_of(item: pytest.Function, options: Options) -> Sequence[int]:
    """The seeds of an async test of ours, by the command line and its marker; empty: it runs without.

    Fails the test where its marker makes no sense.
    """
    seed, seeds = _marked(item)
    if is_in_real_time(item):
        return ()
    if options.seed is not None:
        return (options.seed,)
    if seed is not None:
        return (seed,)
    if options.seeds is not None:
        return range(options.seeds)
    return () if seeds is None else range(seeds)


def is_in_real_time(item: pytest.Function) -> bool:
    """A test that asks for a database, and says nothing about time, gets the real one."""
    if item.get_closest_marker("inbox") is not None:
        return False
    names = set(item.fixturenames)
    virtual = {"virtual_clock", "frozen_clock", "inbox_app", "inbox_world"}
    return "inbox_database" in names and not virtual & names


def _marked(item: pytest.Function) -> tuple[int | None, int | None]:
    marker = item.get_closest_marker("inbox")
    if marker is None:
        return None, None
    if marker.args or marker.kwargs.keys() - {"seed", "seeds"}:
        _refuse(f"it takes seed= or seeds=, and nothing else; got {marker!r}")
    seed, seeds = marker.kwargs.get("seed"), marker.kwargs.get("seeds")
    if not (seed is None or _is_int(seed)):
        _refuse(f"seed= is an int, or None for no seed; got {seed!r}")
    if not (seeds is None or (_is_int(seeds) and seeds >= 1)):
        _refuse(f"seeds= is how many schedules to explore, an int of at least 1; got {seeds!r}")
    if seed is not None and seeds is not None:
        _refuse("seed= is one schedule and seeds= so many of them; give one of the two")
    return seed, seeds


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(what: str) -> None:
    pytest.fail(f"@pytest.mark.inbox: {what}", pytrace=False)


def explore(
    item: pytest.Function,
    nextitem: pytest.Item | None,
    seeds: Sequence[int],
    key: pytest.StashKey[int],
) -> None:
    """Run a test with one seed after another, until one run does not pass; that run, or the last, is
    reported as the test's.

    Each is a run of the whole test, from its set-up to its tear-down: all its fixtures of the scope
    "function" are made anew, and the instance of its class. What is wider stays.

    Args:
        item: The test.
        nextitem: The one behind it.
        seeds: Two or more.
        key: Where the item's set-up finds its seed.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    spent = {"setup": 0.0, "call": 0.0, "teardown": 0.0}
    for seed in seeds:
        if seed != seeds[0]:
            _renew(item)
        item.stash[key] = seed
        try:
            if _run(item, nextitem, spent, is_last=seed == seeds[-1]):
                break
        finally:
            _forget_request(item)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _run(
    item: pytest.Function,
    nextitem: pytest.Item | None,
    spent: dict[str, float],
    *,
    is_last: bool,
) -> bool:
    """Run it once, and report it if it is the last; whether it was."""
    reports = [call_and_report(item, "setup", log=False)]
    if reports[0].passed:
        reports.append(call_and_report(item, "call", log=False))
    is_last = is_last or not all(map(_has_passed, reports))
    if not is_last:
        # To pytest the next item is this one again, so that what belongs to its module stays.
        reports.append(call_and_report(item, "teardown", log=False, nextitem=copy.copy(item)))
        if reports[-1].passed:
            for report in reports:
                spent[report.when or "call"] += report.duration
            return False
    for report in reports:
        report.duration += spent[report.when or "call"]
        item.ihook.pytest_runtest_logreport(report=report)
    if item.session.shouldfail or item.session.shouldstop:
        nextitem = None
    if is_last:
        report = call_and_report(item, "teardown", log=False, nextitem=nextitem)
        report.duration += spent["teardown"]
        item.ihook.pytest_runtest_logreport(report=report)
    else:
        _tear_down_the_rest(item, nextitem)
    return True


def _tear_down_the_rest(item: pytest.Function, nextitem: pytest.Item | None) -> None:
    """The test itself was torn down, and failed in it; what is wider may have to go too."""
    state = item.session._setupstate
    call = pytest.CallInfo.from_call(lambda: state.teardown_exact(nextitem), when="teardown")
    if call.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)


def _has_passed(report: pytest.TestReport) -> bool:
    # One that was to fail in some run, and did not in this one, has to be tried with the other seeds.
    return report.passed or (
        isinstance(report.longrepr, str) and report.longrepr.startswith("[XPASS(strict)]")
    )


def _renew(item: pytest.Function) -> None:
    """As new, but for its marks and parameters."""
    private: Any = item
    private._initrequest()
    private._report_sections.clear()
    # Hypothesis refuses a second instance for one test, since it calls all examples on one.
    if isinstance(item.parent, pytest.Class) and not hasattr(item.obj, "hypothesis"):
        function = getattr(item.obj, "__func__", item.obj)
        private._instance = private.parent.newinstance()
        item.obj = function.__get__(private._instance) if function is not item.obj else function


def _forget_request(item: pytest.Function) -> None:
    """As pytest does behind each test."""
    private: Any = item
    private._request = False
    private.funcargs = None
