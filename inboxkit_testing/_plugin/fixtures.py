"""Fixtures of one run: made inside the loop, in the order in which pytest met them, and ended in reverse.

pytest sets fixtures up before it calls the test, where no loop runs. A fixture that needs the loop,
or the value of one that does, is therefore only noted then, as a `Deferred`; the run makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

__all__ = ["Deferred", "FixtureRun", "is_async"]


def is_async(function: object) -> bool:
    """Whether a fixture's function is a coroutine function or an async generator function."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class Deferred:
    """Stands for the value of a fixture until the run makes it.

    Args:
        name: The fixture's.
        function: What makes the value: sync or async, a generator or not.
        arguments: Of `function`; some may be deferred too.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], arguments: Mapping[str, object]
    ) -> None:
        self.name = name
        self.function = function
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"<fixture {self.name}>"

    def __getattr__(self, attribute: str) -> object:
        raise AttributeError(
            f"no {attribute!r}: the fixture {self.name!r} is made when the test runs, and cannot be "
            "had by request.getfixturevalue(); name it as an argument"
        )


class FixtureRun:
    """The deferred fixtures of one run.

    Args:
        plan: In the order in which they are made.
        values: Those that were made already, outside of the loop.
    """

    def __init__(self, plan: Sequence[Deferred], values: Mapping[Deferred, object]) -> None:
        self._plan = plan
        self._values = dict(values)
        self._open: list[tuple[Deferred, _Open]] = []

    async def call(
        self,
        test: Callable[..., Awaitable[object]],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        cancelled: type[BaseException],
    ) -> None:
        """Make the fixtures, await the test, end the fixtures.

        What the test raised is raised; with errors of fixtures beside it, as a group.

        Cancellation:
            Thrown into the fixtures that are open, so that a task group of a fixture ends as it
            would around the test.
        """
        __tracebackhide__ = True
        failures: list[BaseException] = []
        try:
            for deferred in self._plan:
                if deferred not in self._values:
                    self._values[deferred] = await self._make(deferred)
            await test(*map(self._value, args), **self._resolve(kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)
        while self._open:
            await self._end(*self._open.pop(), failures, cancelled)
        if len(failures) > 1:
            raise BaseExceptionGroup("the test and its fixtures failed", failures)
        if failures:
            raise failures[0]

    async def _make(self, deferred: Deferred) -> object:
        __tracebackhide__ = True
        try:
            made = deferred.function(**self._resolve(deferred.arguments))
            if inspect.iscoroutinefunction(deferred.function):
                return await made
            if inspect.isasyncgenfunction(deferred.function):
                value = await anext(made)
            elif inspect.isgeneratorfunction(deferred.function):
                value = next(made)
            else:
                return made
        except (StopIteration, StopAsyncIteration):
            raise RuntimeError(f"the fixture {deferred.name!r} did not yield a value") from None
        except Exception as error:
            error.add_note(f"(in the set-up of the fixture {deferred.name!r})")
            raise
        self._open.append((deferred, made))
        return value

    async def _end(
        self,
        deferred: Deferred,
        generator: _Open,
        failures: list[BaseException],
        cancelled: type[BaseException],
    ) -> None:
        """Let a fixture go on after its `yield`, and put what it raises to the failures."""
        __tracebackhide__ = True
        cancellation = next((each for each in failures if isinstance(each, cancelled)), None)
        try:
            has_ended = await _resume(generator, cancellation)
        except BaseException as error:  # noqa: BLE001 - raised when all fixtures have ended
            if error is cancellation:
                return
            if isinstance(error, Exception):
                error.add_note(f"(in the fixture {deferred.name!r}, after its yield)")
            failure: BaseException | None = error
        else:
            failure = None
            if not has_ended:
                failure = RuntimeError(f"the fixture {deferred.name!r} has more than one 'yield'")
            elif cancellation is not None and len(failures) == 1:
                failure = RuntimeError(f"the fixture {deferred.name!r} cancelled the test")
        if cancellation is not None:
            failures.remove(cancellation)
        if failure is not None:
            failures.append(failure)

    def _resolve(self, arguments: Mapping[str, object]) -> dict[str, object]:
        return {name: self._value(value) for name, value in arguments.items()}

    def _value(self, argument: object) -> object:
        return self._values[argument] if isinstance(argument, Deferred) else argument


_Open = AsyncGenerator[object, None] | Generator[object, None, None]


async def _resume(generator: _Open, cancellation: BaseException | None) -> bool:
    """Let a fixture go on after its `yield`; whether it came to its end."""
    __tracebackhide__ = True
    try:
        if isinstance(generator, Generator):  # of a sync fixture
            if cancellation is None:
                next(generator)
            else:
                generator.throw(cancellation)
        elif cancellation is None:
            await anext(generator)
        else:
            await generator.athrow(cancellation)
    except (StopIteration, StopAsyncIteration):
        return True
    return False
