"""`CrashAndResume.TestCase`: which databases and loops a machine runs on, and how it is run there."""

from __future__ import annotations

import gc
import logging
import unittest
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from inboxkit_testing._plugin.chosen import current_choice

from .cells import Cell

if TYPE_CHECKING:
    from inboxkit_testing.backends import BackendName

    from .machine import CrashAndResume

__all__ = ["TestCaseOf", "current_cell", "lone_cell", "run_machine", "test_case_of"]

_STEPS = 6
"""Steps are rich, and short runs fast: more examples find more than longer ones."""
_HYPOTHESIS_STEPS = 50
_OBJECTS = 20_000
"""As many as a few examples make."""
_cells: list[Cell] = []


def current_cell() -> Cell | None:
    """Where the machine that is being made is to run; None: nobody has said so."""
    return _cells[-1] if _cells else None


@contextmanager
def in_cell(cell: Cell) -> Iterator[None]:
    """Machines that are made in the block run there; it is closed at the end."""
    _cells.append(cell)
    is_frozen = gc.get_freeze_count() > 0
    thresholds = gc.get_threshold()
    if not is_frozen:
        # What lives already lives on: to look through it again and again is a tenth of each example. And
        # so is to look for garbage at every 700th object, most of which live until a step has ended.
        gc.freeze()
        gc.set_threshold(max(_OBJECTS, thresholds[0]), *thresholds[1:])
    # What goes wrong goes wrong on purpose, hundreds of times; the timeline tells of the one that counts.
    logger = logging.getLogger("inboxkit")
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        if not is_frozen:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
        logger.propagate = propagates
        _cells.pop()
        cell.close()


@contextmanager
def lone_cell(kind: type[CrashAndResume]) -> Iterator[Cell]:
    """For one machine that nobody's TestCase runs."""
    places = _places(kind)
    with closing(places):
        cell = open_cell(kind, *next(places))
        with closing(cell):
            yield cell


def open_cell(kind: type[CrashAndResume], url: str, backend: BackendName) -> Cell:
    """A cell for examples of this machine."""
    machine = kind()
    return Cell(
        url,
        backend,
        factory=machine.service,
        setup=machine.setup,
        populate=machine.populate,
        traffic=kind.traffic,
        keep=kind.keep,
    )


def run_machine(kind: type[CrashAndResume], chosen: settings) -> None:
    """Run a machine on each database and loop that is asked for."""
    chosen = fitted(chosen)
    for url, backend in _places(kind):
        with in_cell(open_cell(kind, url, backend)):
            where = f"{url.partition(':')[0]}, {backend}"
            _see_that_rest_passes(kind, where)
            _run(kind, chosen, where)


def _see_that_rest_passes(kind: type[CrashAndResume], where: str) -> None:
    """Judge a service that is started and stopped, so that a check that cannot pass is told at once.

    Not of a machine with `initialize` rules of its own, without which the check may not be right.
    """
    machine = kind()
    # Not public; without it nothing is told before the examples are run.
    initializers = getattr(machine, "_initialize_rules_to_run", ())
    if [each.function.__name__ for each in initializers] != ["begin"]:
        return
    try:
        machine.rest()
    except Exception as error:
        error.add_note(
            "Nothing was published and nothing failed: the service was started and stopped, and this is "
            "not right. Rows that each example begins with are written by `populate`"
        )
        error.add_note(f"on {where}")
        raise


def _run(kind: type[CrashAndResume], chosen: settings, where: str) -> None:
    try:
        run_state_machine_as_test(kind, settings=chosen)
    except Flaky as error:
        error.add_note(
            "The same steps went differently when they were made again. The machine decides the order of "
            "statements, the time and what fails; what is left is the service's: uuid4, random or time of "
            "its own, the order of a set, threads, or state that outlives an example. Take randomness "
            "from `delivery.database.random` and time from `delivery.clock`"
        )
        error.add_note(f"on {where}")
        raise
    except BaseException as error:
        error.add_note(f"on {where}")
        raise


def _places(kind: type[CrashAndResume]) -> Generator[tuple[str, BackendName], None, None]:
    choice = current_choice()
    names = choice.options.databases if kind.database is None else (kind.database,)
    backends: tuple[Any, ...] = choice.options.backends if kind.backend is None else (kind.backend,)
    for name in names:
        for backend in backends:
            if "://" in name:
                yield name, backend
                continue
            # The same SQLite and the same SQL, without a hop to a thread for each statement.
            plain = "sqlite-inloop" if name == "sqlite" and kind.database is None else name
            with choice.databases.fresh(plain) as url:
                yield url, backend


class TestCaseOf:
    """As Hypothesis's own, but it runs on every database and loop that was chosen."""

    def __get__(self, machine: object, kind: type[Any]) -> type[unittest.TestCase]:
        key: Any = kind
        made: type[unittest.TestCase] = _make(key)
        return made

    def __set__(self, machine: object, value: object) -> None:
        raise AttributeError("TestCase cannot be set")


test_case_of: TestCaseOf = TestCaseOf()


@cache
def _make(kind: Any) -> type[unittest.TestCase]:
    class CrashAndResumeTestCase(unittest.TestCase):
        settings = default_settings()

        def runTest(self) -> None:  # noqa: N802 - unittest's name
            run_machine(kind, type(self).settings)

        runTest.is_hypothesis_test = True  # type: ignore[attr-defined]
        runTest._hypothesis_state_machine_class = kind  # type: ignore[attr-defined]

    CrashAndResumeTestCase.__name__ = f"{kind.__name__}.TestCase"
    CrashAndResumeTestCase.__qualname__ = f"{kind.__qualname__}.TestCase"
    CrashAndResumeTestCase.__module__ = kind.__module__
    return CrashAndResumeTestCase


def default_settings() -> settings:
    """Of the profile in force, with what a machine needs."""
    return fitted(settings())


def fitted(chosen: settings) -> settings:
    """With what a machine needs where nobody has said otherwise.

    The deadline and the health checks measure real time, mostly of databases.
    """
    is_plain = chosen.deadline == settings().deadline
    steps = chosen.stateful_step_count
    checks: Any = list(HealthCheck)
    return settings(
        chosen,
        deadline=None if is_plain else chosen.deadline,
        suppress_health_check=checks,
        stateful_step_count=_STEPS if steps == _HYPOTHESIS_STEPS else steps,
    )
