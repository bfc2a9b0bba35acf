"""Runs a machine in one place, with a seed, and says what came of it; not part of what is shown.

In a project of one's own ``TestCharges = Fixed.TestCase`` is all that is needed; these tests have to be
short, and to find something. They run on SQLite, which is the cheapest; `rates` goes to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import Phase, seed, settings

from inboxkit_testing import CrashAndResume
from inboxkit_testing.backends import BackendName

__all__ = ["Search", "finds_nothing", "finds_the_bug", "search"]

DEFAULT_EXAMPLES = 100


@dataclass(frozen=True, slots=True)
class Search:
    """What became of one run."""

    error: Exception | None
    """What was found."""
    examples: int
    """Up to the first that failed, or all."""
    seconds: float


def search(
    machine: type[CrashAndResume],
    database: str,
    backend: BackendName,
    *,
    number: int,
    examples: int = DEFAULT_EXAMPLES,
    shrink: bool = False,
) -> Search:
    """Run a machine as its `TestCase` would, in one place.

    Args:
        machine: What a user has written.
        database: A kind, or a URL.
        backend: The loop.
        number: The seed.
        examples: Most examples.
        shrink: Whether to look for the shortest way to what was found.
    """
    ended: list[bool] = []

    class Counted(machine):  # type: ignore[valid-type, misc]
        def teardown(self) -> None:
            has_begun = self._steps is not None
            if has_begun:
                ended.append(False)
            super().teardown()
            if has_begun:
                ended[-1] = True

    # Under the name of what the user has written, which is what the pytest case imports.
    Counted.__name__, Counted.__qualname__ = machine.__name__, machine.__qualname__
    Counted.__module__ = machine.__module__
    Counted.database, Counted.backend = database, backend
    chosen: Any = seed(number)(Counted)
    chosen.TestCase.settings = settings(
        max_examples=examples,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        report_multiple_bugs=False,
    )
    error = None
    began = time.perf_counter()
    try:
        chosen.TestCase().debug()
    except Exception as caught:  # noqa: BLE001 - what it found
        error = caught
    until = ended.index(False) + 1 if False in ended else len(ended)
    return Search(error, until, time.perf_counter() - began)


def finds_the_bug(machine: type[CrashAndResume], number: int) -> Callable[..., None]:
    """A test: the machine finds what is wrong.

    Args:
        machine: Over the service that is wrong.
        number: A seed that finds it in a few examples, so that the test is short; `rates` counts how
            many any seed takes.
    """

    def test(inbox_backend: BackendName) -> None:
        found = search(machine, "sqlite-inloop", inbox_backend, number=number)
        assert found.error is not None
        assert "The same as a test" in "\n".join(found.error.__notes__)

    return test


def finds_nothing(machine: type[CrashAndResume], examples: int = 3) -> Callable[..., None]:
    """A test: there is nothing to be found, or not by the way."""

    def test(inbox_backend: BackendName) -> None:
        found = search(machine, "sqlite-inloop", inbox_backend, number=1, examples=examples)
        if found.error is not None:
            raise found.error
        assert found.examples >= examples

    return test
