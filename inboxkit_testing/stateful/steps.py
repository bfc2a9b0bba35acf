"""What a machine does to a world, kept so that it can be done again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from inboxkit.errors import DatabaseError, InboxkitError
from inboxkit_testing.crashpoints import When
from inboxkit_testing.links import How
from inboxkit_testing.world import World

from .cells import Facts
from .traffic import Draft, FromNow, GroupOf

__all__ = ["Call", "Steps"]


@dataclass(slots=True, eq=False)
class Call:
    """One method of the world that was called, or one function of the user's."""

    name: str | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_async: bool = False
    raised: BaseException | None = None
    """What it raised; a step that goes on has expected it."""


@dataclass(slots=True)
class Steps:
    """Makes steps happen to a world, and writes each call down.

    A step that cannot be made, since its instance does not run, does nothing.

    Args:
        world: The world.
        facts: Of its service.
    """

    world: World
    facts: Facts
    calls: list[Call] = field(default_factory=list)

    # What is there

    def runs(self, name: str) -> bool:
        """Whether it serves."""
        instance = self.world.instances.get(name)
        return instance is not None and instance.state == "running"

    def first_down(self, names: Sequence[str]) -> str | None:
        """The first of these that can be started."""
        for name in names[: self.facts.most_instances]:
            instance = self.world.instances.get(name)
            if instance is None or instance.state in ("stopped", "failed", "crashed"):
                return name
        return None

    def first_cut(self) -> str | None:
        """The first that is cut off."""
        return next((n for n in self.world.running if self.world.instances[n].is_cut), None)

    # Steps

    async def publish(self, drafts: Sequence[Draft], by: str | None) -> None:
        """Publish rows, by an instance if it runs, else by another process."""
        publisher = by if by is not None and self.runs(by) else None
        told: dict[str, str] = {} if publisher is None else {"by": publisher}
        if len(drafts) == 1:
            draft = drafts[0]
            await self._make("publish", draft.queue, draft.message, **told, **draft.columns)
            return
        rows = [
            (draft.queue, draft.message, *([draft.columns] if draft.columns else []))
            for draft in drafts
        ]
        await self._make("publish_together", *rows, **told)

    async def start(self, name: str, offset: timedelta, drift: float) -> None:
        """Start an instance that is down; one that fails to is down still."""
        clock: dict[str, Any] = {}
        if offset:
            clock["clock_offset"] = offset
        if drift:
            clock["drift"] = drift
        self._forgive(name)
        await self._make("start", name, **clock)

    async def stop(self, name: str, cancel: bool) -> None:
        """Tell an instance to stop; what it does meanwhile is still to come."""
        if self.runs(name):
            await self._make("stop_nowait", name, **({"cancel": True} if cancel else {}))

    async def crash(self, name: str) -> None:
        """Kill an instance that runs."""
        if self.runs(name):
            await self._make("crash", name)

    async def crash_at(self, name: str, statement: int | str, when: When) -> None:
        """Have an instance die, or lose a reply, at a statement to come."""
        if self.runs(name):
            await self._make("crash_at", name, statement, when)

    async def delay_at(self, name: str, statement: int | str, seconds: float) -> None:
        """Have a statement to come be late."""
        if self.runs(name):
            await self._make("delay_at", name, statement, seconds)

    async def refuse(self, name: str, statement: int | str, times: int) -> None:
        """Have statements to come fail."""
        if self.runs(name):
            await self._make("refuse", name, statement, times=times)

    async def partition(self, name: str, how: How) -> None:
        """Cut an instance from the database."""
        if self.runs(name) and not self.world.instances[name].is_cut:
            await self._make("partition", name, how)

    async def heal(self, name: str) -> None:
        """Let it reach the database again."""
        await self._make("heal", name)

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        await self._make("advance", timedelta(seconds=seconds))

    async def finish(self) -> None:
        """Fair weather until all is done.

        Raises:
            InvariantViolation: It never is.
        """
        for instance in self.world.instances.values():
            instance.error_was_told = True
        await self._make("calm")
        await self._make("drain", skip_waits=True)
        # A settlement whose reply was lost has taken its row, and is still to be heard of.
        for name in self.world.running:
            await self._make("stop", name)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """A step of the user's own."""
        call = Call(function, args, {}, is_async=inspect.iscoroutinefunction(function))
        self.calls.append(call)
        try:
            result = function(self.world, *args)
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            call.raised = error
            raise

    # One call

    def _forgive(self, name: str) -> None:
        """One that ended by itself is started again, as a supervisor would."""
        instance = self.world.instances.get(name)
        if instance is not None:
            instance.error_was_told = True

    async def _make(self, name: str, *args: Any, **kwargs: Any) -> Any:
        method = getattr(self.world, name)
        call = Call(name, args, kwargs, is_async=inspect.iscoroutinefunction(method))
        self.calls.append(call)
        try:
            result = method(*map(self._now, args), **{k: self._now(v) for k, v in kwargs.items()})
            return await result if call.is_async else result
        except InboxkitError as error:
            call.raised = error
            if not self._is_to_be_expected(name, error):
                raise
        except BaseException as error:
            call.raised = error
            raise
        return None

    def _is_to_be_expected(self, name: str, error: InboxkitError) -> bool:
        """Whether it is what comes of a database that is out of reach."""
        if name in ("publish", "publish_together"):
            return isinstance(error, DatabaseError)
        # Some transaction may hold a lock for long, since one of its statements is held back.
        return name == "start" and isinstance(error, DatabaseError)

    def _now(self, value: Any) -> Any:
        if isinstance(value, FromNow):
            return self.world.clock.now() + value.delay
        if isinstance(value, GroupOf):
            return value.queue.group(value.group)
        if isinstance(value, tuple):
            return tuple(map(self._now, value))
        if isinstance(value, Mapping):
            return {name: self._now(each) for name, each in value.items()}
        return value
