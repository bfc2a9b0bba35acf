"""How a test of the suite gets its bench, and runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import anyio
import pytest

from .bench import Bench

__all__ = ["Conformance", "RunOnBench", "on_bench"]

RunOnBench: TypeAlias = Callable[[Callable[[Bench], Awaitable[None]]], None]


class Conformance:
    """Tests that run on a bench; who derives from it says on which."""

    @pytest.fixture
    def bench(self) -> Bench:
        """The bench of one test, not entered yet: to be overridden, with any fixtures and parameters."""
        return pytest.fail(
            f"{type(self).__name__} must override the fixture `bench`: return a Bench of the claim form "
            "or database to be tested, such as ModelBench('lease')",
            pytrace=False,
        )

    @pytest.fixture
    def on_bench(self, bench: Bench, inbox_backend: str) -> RunOnBench:
        """Run an async function with the bench, in a loop of its own and in real time.

        To be overridden where a loop and its connections are to outlive a test.
        """

        def run(test: Callable[[Bench], Awaitable[None]]) -> None:
            async def main() -> None:
                async with bench:
                    await test(bench)

            anyio.run(main, backend=inbox_backend)

        return run


def on_bench(test: Callable[[Any, Bench], Awaitable[None]]) -> Callable[..., None]:
    """Make a test method of an async one that takes a bench."""

    def run(self: Conformance, on_bench: RunOnBench) -> None:
        __tracebackhide__ = True
        on_bench(partial(test, self))

    # No `functools.wraps`: pytest would see the signature of `test` through it.
    run.__name__, run.__qualname__ = test.__name__, test.__qualname__
    run.__doc__, run.__module__ = test.__doc__, test.__module__
    setattr(run, "place_as", test)  # noqa: B010 - where pytest says that the test is
    return run
