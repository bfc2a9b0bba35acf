"""A service under test: publish, let time pass, look at what was called and at the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    Outcome,
    Service,
    Subscriber,
)
from inboxkit._core.async_only import AsyncOnly
from inboxkit.errors import ClosedError, DeclarationError

from ._reading import read_rows

__all__ = ["Call", "SubscriberLog", "TestApp"]


@runtime_checkable
class _Movable(Protocol):
    async def advance(self, by: timedelta) -> None: ...

    async def settle(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a handler."""

    message: Any
    """Decoded."""
    id: Any
    attempt: int | None
    """The delivery's number; None where the table keeps none."""
    outcome: Outcome | None
    """What it answered; None where it raised, was cancelled, or has not ended."""
    error: BaseException | None
    """What it raised, if anything: LeaseLostError where its hold was lost."""


@dataclass(slots=True)
class SubscriberLog:
    """What one handler was called with, in order of the calls' starts."""

    name: str
    calls: list[Any] = field(default_factory=list)
    """The decoded messages; of a handler of batches, lists of them."""
    runs: list[Call] = field(default_factory=list)
    """The same with what came of them, in order of their ends; one for each message of a batch."""

    def assert_called_once(self) -> None:
        """Raise AssertionError unless there was exactly one call."""
        if len(self.calls) != 1:
            raise AssertionError(f"expected one call of {self.name!r}, got {self._describe()}")

    def assert_not_called(self) -> None:
        """Raise AssertionError if there was a call."""
        if self.calls:
            raise AssertionError(f"expected no call of {self.name!r}, got {self._describe()}")

    def assert_called_with(self, *messages: Any) -> None:
        """Raise AssertionError unless the calls had these messages, in this order."""
        if self.calls != list(messages):
            expected = f"expected calls of {self.name!r} with {list(messages)!r}"
            raise AssertionError(f"{expected}, got {self._describe()}")

    def _describe(self) -> str:
        return f"{len(self.calls)}: {self.calls!r}" if self.calls else "none"


class TestApp(AsyncOnly):
    """Runs a service in virtual time, as an async context manager.

    Its clock is its database's, which has to be a `VirtualClock` (the fixture `inbox_database` takes
    the one that the test names).

    Args:
        service: Not running; its handlers, tables and settings are used as they are.

    Raises:
        DeclarationError: The service's database keeps another clock.
    """

    __test__ = False

    def __init__(self, service: Service) -> None:
        clock = service.broker.database.clock
        if not isinstance(clock, _Movable):
            raise DeclarationError(
                f"TestApp needs a database in virtual time, not with {clock!r}: give the test a "
                "virtual_clock or frozen_clock beside inbox_database, or Database(url, clock=VirtualClock())"
            )
        self.service = service
        self.broker: Broker = service.broker
        self.database: Database = service.broker.database
        self._clock = clock
        self._logs: dict[str, SubscriberLog] = {}
        self._resources = AsyncExitStack()
        self._was_entered = False
        self.outcomes: list[Outcome] = []
        """What handlers answered, in order."""
        for subscriber in service.subscribers:
            self._logs[subscriber.queue.name] = SubscriberLog(subscriber.name)
        service.use(self._record, batch=self._record_batch)

    async def __aenter__(self) -> Self:
        self._was_entered = True
        await self._resources.__aenter__()
        await self._resources.enter_async_context(self.service.running())
        await self._clock.settle()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._resources.__aexit__(kind, error, traceback)

    async def publish(self, queue: InboxQueue[Any, Any] | str, message: Any, **columns: Any) -> Any:
        """Publish, and return the row's id when all that it caused now has happened.

        Raises:
            ClosedError: The block has not been entered.
        """
        self._check_entered()
        id = await self.broker.publish(queue, message, **columns)
        await self._clock.settle()
        return id

    async def advance(self, by: timedelta) -> None:
        """Let so much virtual time pass; what falls due on the way happens in order.

        Raises:
            ClosedError: The block has not been entered.
        """
        self._check_entered()
        await self._clock.advance(by)

    async def settle(self) -> None:
        """Return when everything that can happen now has happened.

        Raises:
            ClosedError: The block has not been entered.
        """
        self._check_entered()
        await self._clock.settle()

    def subscriber(self, which: Subscriber[Any, Any] | str) -> SubscriberLog:
        """The calls of one handler.

        Args:
            which: The decorated function, its name, or its queue's name.

        Raises:
            LookupError: The service does not include it, or several of that name.
        """
        name = which if isinstance(which, str) else which.queue.name
        found = [log for queue, log in self._logs.items() if queue == name]
        if not found:
            found = [log for log in self._logs.values() if log.name == name]
        if len(found) != 1:
            known = ", ".join(f"{log.name!r} of {queue!r}" for queue, log in self._logs.items())
            raise LookupError(
                f"{len(found) or 'no'} subscribers are called {name!r}; the service has {known}"
            )
        return found[0]

    async def rows(self, table: type[Inbox] | InboxSpec) -> list[Any]:
        """All rows of a table, in the order of their ids.

        Raises:
            ClosedError: The block has not been entered.
        """
        self._check_entered()
        return await read_rows(self.database, table)

    async def pending(self, table: type[Inbox] | InboxSpec) -> list[Any]:
        """Rows that are neither finished nor in a dead-letter group."""
        spec = table if isinstance(table, InboxSpec) else table.spec
        return [
            row
            for row in await self.rows(table)
            if not _is_finished(spec, row) and not self._is_dead(spec, row)
        ]

    async def dead(self, table: type[Inbox] | InboxSpec) -> list[Any]:
        """Rows in a group that is some subscription's dead letter; all rows, where the table is one."""
        spec = table if isinstance(table, InboxSpec) else table.spec
        rows = await self.rows(table)
        if spec.name in self.service.dead_letter_tables:
            return rows
        return [row for row in rows if self._is_dead(spec, row) and not _is_finished(spec, row)]

    def _check_entered(self) -> None:
        """Until then nothing serves, and the tables that the service makes at its start are not there."""
        if not self._was_entered:
            raise ClosedError(
                f"TestApp of service {self.service.name!r} does not run yet: enter it first, by "
                "async with TestApp(service) as app"
            )

    def _is_dead(self, spec: InboxSpec, row: Any) -> bool:
        if spec.group is None:
            return False
        group = _value(spec, row, "group")
        return group is not None and self.service.is_dead_letter(spec.name, group)

    async def _record(self, delivery: Delivery[Any, Any], call_next: Any) -> Outcome:
        log = self._logs[delivery.queue.name]
        log.calls.append(delivery.message)
        attempt = delivery.attempt if delivery.queue.spec.attempt is not None else None
        try:
            outcome: Outcome = await call_next(delivery)
        except BaseException as error:
            log.runs.append(Call(delivery.message, delivery.id, attempt, None, error))
            raise
        log.runs.append(Call(delivery.message, delivery.id, attempt, outcome, None))
        self.outcomes.append(outcome)
        return outcome

    async def _record_batch(
        self, deliveries: list[Delivery[Any, Any]], call_next: Any
    ) -> list[Outcome]:
        log = self._logs[deliveries[0].queue.name]
        log.calls.append([delivery.message for delivery in deliveries])

        def note(outcomes: Sequence[Outcome | None], error: BaseException | None) -> None:
            for delivery, outcome in zip(deliveries, outcomes, strict=True):
                attempt = delivery.attempt if delivery.queue.spec.attempt is not None else None
                log.runs.append(Call(delivery.message, delivery.id, attempt, outcome, error))

        try:
            outcomes: list[Outcome] = await call_next(deliveries)
        except BaseException as error:
            note([None] * len(deliveries), error)
            raise
        note(outcomes, None)
        self.outcomes += outcomes
        return outcomes


def _is_finished(spec: InboxSpec, row: Any) -> bool:
    return spec.processed_at is not None and _value(spec, row, "processed_at") is not None


def _value(spec: InboxSpec, row: Any, role: str) -> Any:
    name = spec.field_of(getattr(spec, role))
    return row[name] if isinstance(row, Mapping) else getattr(row, name)
