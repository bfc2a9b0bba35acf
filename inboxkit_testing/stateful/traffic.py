"""What a machine publishes: queues, and strategies for their messages and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from inboxkit import InboxQueue
from inboxkit.errors import DeclarationError
from inboxkit.every_group import EveryGroup

if TYPE_CHECKING:
    from inboxkit import Service

    from .machine import CrashAndResume

__all__ = ["Draft", "FromNow", "GroupOf", "Traffic", "check_traffic", "drafts", "traffic"]


@dataclass(frozen=True, slots=True)
class FromNow:
    """An instant, counted from when the row is published."""

    delay: timedelta

    def __repr__(self) -> str:
        return f"in {self.delay}"


@dataclass(frozen=True, slots=True)
class GroupOf:
    """One group of a queue of all groups."""

    queue: EveryGroup[Any, Any]
    group: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages of one queue; made by `traffic`."""

    queue: InboxQueue[Any, Any]
    message: Any
    group: st.SearchStrategy[str] | None
    due: st.SearchStrategy[timedelta | None] | None
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Draft:
    """A row to be published."""

    queue: InboxQueue[Any, Any] | GroupOf
    message: Any
    columns: Mapping[str, Any]

    def __repr__(self) -> str:
        told = "".join(f", {name}={value!r}" for name, value in self.columns.items())
        name = self.queue.group if isinstance(self.queue, GroupOf) else self.queue.name
        return f"({name!r}, {self.message!r}{told})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - as IPython has it
        printer.text(repr(self))


def traffic(
    queue: InboxQueue[Any, Any],
    message: Any = None,
    *,
    group: st.SearchStrategy[str] | None = None,
    due: st.SearchStrategy[timedelta | None] | None = None,
    **columns: Any,
) -> Traffic:
    """Messages that a crash-and-resume machine publishes to a queue.

        traffic(ORDERS, st.builds(Order, id=st.integers(1, 5)))
        traffic(POSTINGS, lambda n: Posting(n), account=st.sampled_from(["alice", "bob"]))

    Args:
        queue: The queue.
        message: A strategy; or a function of the message's number in the run (1, 2, …) that returns
            a message or a strategy, where each message is to be another one. None: what Hypothesis
            makes of the queue's message type.
        group: Of `InboxQueue.every_group`: names of the groups to publish to.
        due: How long from now a message is put off, or None: not at all. For tables with
            `retry_after`.
        columns: Of the row's other columns, by the names of their fields: strategies, functions of
            the message, or plain values.

    Raises:
        DeclarationError: An argument cannot be right; names it.
    """
    if not isinstance(queue, InboxQueue):
        raise DeclarationError(f"traffic() takes an InboxQueue, not {queue!r}")
    where = f"traffic({queue.name!r})"
    if message is None:
        if queue.message is None:
            raise DeclarationError(
                f"{where}: the queue does not say what its messages are; give a strategy for them"
            )
        message = st.from_type(queue.message)
    if not isinstance(message, st.SearchStrategy) and not callable(message):
        raise DeclarationError(
            f"{where}: message is a strategy or a function of a number, not {message!r}; for one "
            "message only: st.just(...)"
        )
    if (group is not None) != isinstance(queue, EveryGroup):
        how = (
            "has its group in its name; leave group out" if group is not None else "is every group"
        )
        raise DeclarationError(
            f"{where}: this queue {how}"
            + (
                ""
                if group is not None
                else ": say which groups, by group=strategies.sampled_from(['acme', …]) of Hypothesis"
            )
        )
    if due is not None:
        if queue.spec.retry_after is None:
            raise DeclarationError(
                f"{where}: due needs a column retry_after, and {queue.spec.name!r} has none"
            )
        name = queue.spec.field_of(queue.spec.retry_after)
        if name in columns:
            raise DeclarationError(f"{where}: due and {name} are the same column; give one")
    for name in columns:
        _check_column(where, queue, name)
    return Traffic(queue, message, group, due, columns)


def _check_column(where: str, queue: InboxQueue[Any, Any], name: str) -> None:
    if queue.row is None:
        return  # described by hand: `publish` knows
    known = queue.row.__inbox__.fields
    if name not in known:
        told = ", ".join(map(repr, known))
        raise DeclarationError(
            f"{where}: {queue.spec.name!r} has no column {name!r}; it has {told}"
        )


def check_traffic(service: Service, listed: Sequence[Traffic]) -> None:
    """See that the service knows all the queues.

    Raises:
        DeclarationError: One is neither served nor routed, or is no `Traffic`.
    """
    for one in listed:
        queue = one.queue
        is_served = any(
            subscriber.queue.spec.name == queue.spec.name
            and subscriber.queue.only_group in (None, queue.only_group)
            for subscriber in service.subscribers
        )
        if not is_served:
            served = ", ".join(repr(subscriber.queue.name) for subscriber in service.subscribers)
            raise DeclarationError(
                f"traffic({queue.name!r}): the service has no subscription of that queue, so nobody would "
                f"do this work; it serves {served or 'nothing'}"
            )


def drafts(listed: Sequence[Traffic]) -> st.SearchStrategy[Draft]:
    """One row of any of them."""
    return st.one_of([_draft(one) for one in listed])


@st.composite
def _draft(draw: st.DrawFn, one: Traffic) -> Draft:
    message = one.message
    if not isinstance(message, st.SearchStrategy):
        machine: CrashAndResume = draw(st.runner())
        message = message(machine.next_number())
    if isinstance(message, st.SearchStrategy):
        message = draw(message)
    columns = {name: _value(draw, given, message) for name, given in one.columns.items()}
    if one.due is not None and (delay := draw(one.due)) is not None:
        if not isinstance(delay, timedelta):
            raise InvalidArgument(f"due draws timedeltas and None, not {delay!r}")
        assert one.queue.spec.retry_after is not None
        columns[one.queue.spec.field_of(one.queue.spec.retry_after)] = FromNow(delay)
    queue: InboxQueue[Any, Any] | GroupOf = one.queue
    if one.group is not None:
        assert isinstance(one.queue, EveryGroup)
        queue = GroupOf(one.queue, draw(one.group))
    return Draft(queue, message, columns)


def _value(draw: st.DrawFn, given: Any, message: Any) -> Any:
    if isinstance(given, st.SearchStrategy):
        return draw(given)
    made: Callable[[Any], Any] = given
    return made(message) if callable(given) else given
