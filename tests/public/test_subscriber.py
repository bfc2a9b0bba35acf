from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import anyio
import pytest

from inboxkit import role
from inboxkit._core.outcomes import Ack, Outcome, ack, drop
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._runtime.delivery import Delivery, TransactionalDelivery
from inboxkit.errors import DeclarationError
from inboxkit.queue import InboxQueue
from inboxkit.subscriber import Subscriber, subscriber
from inboxkit.table import Inbox
from inboxkit_testing import delivery

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Report:
    pages: int


@dataclass
class Long(Report):
    chapters: int


class Typed(TypedDict):
    pages: int


class HasPages(Protocol):
    pages: int


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class RowMode(Inbox, table="row_mode"):
    id: int = role.id(generated=True)


REPORTS = InboxQueue(Jobs, "reports", Report)
UNTYPED = InboxQueue(Jobs, "reports")
ROWS = InboxQueue(RowMode, "rows")
BY_HAND = InboxQueue(InboxSpec("by_hand", id=Column("id")), "rows")


def test_a_subscriber_is_its_function() -> None:
    @subscriber(REPORTS)
    async def render(report: Report) -> Ack:
        """Render one."""
        assert report.pages == 3
        return ack()

    assert isinstance(render, Subscriber)
    assert render.queue is REPORTS
    assert (render.name, render.__doc__) == ("render", "Render one.")
    assert render.message_type is Report
    assert not render.takes_delivery
    assert not render.row_mode
    assert inspect.iscoroutinefunction(render.function)
    assert anyio.run(render, Report(3)) == ack()
    assert repr(render) == "<Subscriber render of InboxQueue('jobs', 'reports', Report)>"


def test_a_second_parameter_takes_the_delivery() -> None:
    @subscriber(REPORTS)
    async def plain(report: Report, delivery: Delivery) -> None: ...
    @subscriber(REPORTS)
    async def generic(report: Report, delivery: Delivery[Jobs, Report]) -> None: ...
    @subscriber(REPORTS)
    async def with_more(
        report: Report, delivery: Delivery, *rest: Any, log: Any = None
    ) -> None: ...
    @subscriber(REPORTS)
    async def optional(report: Report, verbose: bool = False) -> None: ...

    assert plain.takes_delivery
    assert generic.takes_delivery
    assert with_more.takes_delivery
    assert not optional.takes_delivery


def test_the_message_type_is_the_handlers_where_the_queue_has_none() -> None:
    @subscriber(UNTYPED)
    async def union(message: Report | list[int]) -> None: ...
    @subscriber(UNTYPED)
    async def anything(message: Any) -> None: ...

    assert union.message_type == Report | list[int]
    assert anything.message_type is Any


def test_the_queues_type_wins_over_a_wider_annotation() -> None:
    async def wide(message: object) -> None: ...
    async def union(message: Report | None) -> None: ...
    async def base(message: Report) -> None: ...
    async def protocol(message: HasPages) -> None: ...
    async def bare(message) -> None: ...  # type: ignore[no-untyped-def]

    for handler in (wide, union, base, protocol, bare):
        assert subscriber(InboxQueue(Jobs, "long", Long))(handler).message_type is Long


def test_an_annotation_for_type_checkers_alone_is_fine_where_the_queue_knows() -> None:
    async def handler(message: Decimal) -> None: ...

    assert subscriber(REPORTS)(handler).message_type is Report  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"'Decimal' of parameter 'message'.*TYPE_CHECKING"):
        subscriber(UNTYPED)(handler)


def test_local_types_are_found() -> None:
    @dataclass
    class Local:
        x: int

    @subscriber(UNTYPED)
    async def handler(message: Local) -> None: ...

    assert handler.message_type is Local


def test_rows_where_there_is_no_payload() -> None:
    @subscriber(ROWS)
    async def by_class(row: RowMode, delivery: Delivery) -> None: ...
    @subscriber(BY_HAND)
    async def by_hand(row: Mapping[str, Any]) -> None: ...

    assert by_class.row_mode
    assert by_class.message_type is RowMode
    assert by_hand.row_mode
    assert by_hand.message_type is Mapping


class Service:
    async def handle(self, report: Report, delivery: Delivery) -> Outcome:
        return drop("bound")

    async def __call__(self, report: Report) -> Outcome:
        return drop("called")


async def with_client(client: str, report: Report, delivery: Delivery, *, url: str) -> Outcome:
    return drop(client + url)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


@decorated
async def wrapped(report: Report, delivery: Delivery) -> Outcome:
    return drop("wrapped")


@pytest.mark.parametrize(
    ("handler", "name", "takes_delivery", "reason"),
    [
        (Service().handle, "handle", True, "bound"),
        (Service(), "Service", False, "called"),
        (functools.partial(with_client, "a", url="b"), "with_client", True, "ab"),
        (
            functools.partial(functools.partial(with_client, "a"), url="c"),
            "with_client",
            True,
            "ac",
        ),
        (wrapped, "wrapped", True, "wrapped"),
    ],
)
def test_handlers_of_all_kinds(handler: Any, name: str, takes_delivery: bool, reason: str) -> None:
    made = subscriber(UNTYPED)(handler)
    assert made.name == name
    assert made.message_type is Report
    assert made.takes_delivery == takes_delivery
    arguments = (Report(1), None) if takes_delivery else (Report(1),)
    assert anyio.run(made, *arguments) == drop(reason)


def sync(report: Report) -> None: ...
async def nothing() -> None: ...
async def keyword_only(*, report: Report) -> None: ...
async def too_many(report: Report, delivery: Delivery, client: str) -> None: ...
async def keyword_required(report: Report, *, client: str) -> None: ...
async def not_a_delivery(report: Report, attempt: int) -> None: ...
async def untyped_delivery(report: Report, delivery) -> None: ...  # type: ignore[no-untyped-def]
async def transactional(report: Report, delivery: TransactionalDelivery[Jobs]) -> None: ...
async def other_message(report: int) -> None: ...
async def takes_the_row(row: Jobs) -> None: ...
async def takes_a_payload(report: Report) -> None: ...
async def untyped(report) -> None: ...  # type: ignore[no-untyped-def]
async def raw_union(report: str | None) -> None: ...


@pytest.mark.parametrize(
    ("queue", "handler", "message"),
    [
        (REPORTS, sync, "handler sync of queue 'reports' is not async; write async def"),
        (REPORTS, Service, "is not async"),
        (REPORTS, 3, "is not async"),
        (REPORTS, nothing, "takes no message"),
        (REPORTS, keyword_only, "takes no message"),
        (REPORTS, too_many, "give client a default, or fill it by functools.partial"),
        (REPORTS, keyword_required, "give client a default"),
        (REPORTS, not_a_delivery, "'attempt' is int; write attempt: Delivery"),
        (REPORTS, untyped_delivery, "'delivery' has no type; write delivery: Delivery"),
        (REPORTS, Service.handle, r"subscriber\(queue\)\(instance\.method\)"),
        (REPORTS, other_message, "takes int, but the queue's messages are Report"),
        (UNTYPED, takes_the_row, r"the row is delivery\.row"),
        (UNTYPED, untyped, "write report: YourMessage"),
        (UNTYPED, raw_union, "stored as it is"),
        (ROWS, takes_a_payload, "no payload, so its message is the row, RowMode, not Report"),
        (BY_HAND, takes_a_payload, r"the row, Mapping\[str, Any\], not Report"),
    ],
)
def test_functions_that_cannot_be_handlers(queue: Any, handler: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        subscriber(queue)(handler)


def test_a_transactional_handler_says_so_twice() -> None:
    made = subscriber(REPORTS, transactional=True)(transactional)
    assert (made.transactional, made.takes_delivery) == (True, True)
    assert not subscriber(REPORTS)(takes_a_payload).transactional
    for declared, handler, message in (
        (
            False,
            transactional,
            r"'delivery' is a TransactionalDelivery; write @subscriber\(queue, tr",
        ),
        (True, Service().handle, r"'delivery' is Delivery; write delivery: TransactionalDelivery"),
        (True, untyped_delivery, r"has no type; write delivery: TransactionalDelivery"),
        (True, takes_a_payload, r"add a second parameter delivery: TransactionalDelivery"),
    ):
        decorate: Any = subscriber(REPORTS, transactional=declared)  # type: ignore[call-overload]
        with pytest.raises(DeclarationError, match=message):
            decorate(handler)
    with pytest.raises(DeclarationError, match="transactional=True and batch do not go together"):
        subscriber(REPORTS, transactional=True, batch=2)  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="transactional must be True or False"):
        subscriber(REPORTS, transactional=1)  # type: ignore[call-overload]


def test_the_queue_comes_first() -> None:
    with pytest.raises(DeclarationError, match="takes an InboxQueue"):
        subscriber(Jobs)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="takes an InboxQueue"):

        @subscriber  # type: ignore[arg-type]
        async def handler(report: Report) -> None: ...


def test_a_function_is_subscribed_once() -> None:
    once = subscriber(REPORTS)(takes_a_payload)
    with pytest.raises(DeclarationError, match=r"subscriber of 'reports' already.*\.function\)"):
        subscriber(REPORTS)(once)
    assert subscriber(REPORTS)(once.function).function is takes_a_payload


def test_a_handler_of_batches_takes_a_list_of_deliveries() -> None:
    @subscriber(REPORTS, batch=3)
    async def add_up(deliveries: list[Delivery[Jobs, Report]]) -> list[Outcome]:
        return [ack() if delivery.message.pages else drop() for delivery in deliveries]

    async def bare(deliveries: list[Delivery]) -> None: ...
    async def plain(deliveries: list) -> None: ...  # type: ignore[type-arg]
    async def anything(deliveries: Any) -> None: ...
    async def without(deliveries) -> None: ...  # type: ignore[no-untyped-def]
    async def wide(
        deliveries: Sequence[Delivery[Inbox, Report | None]], log: Any = None
    ) -> None: ...
    async def rows(deliveries: list[Delivery[RowMode, RowMode]]) -> None: ...
    async def by_hand(deliveries: list[Delivery[Mapping[str, Any], Any]]) -> None: ...

    for handler in (add_up.function, bare, plain, anything, without, wide):
        made = subscriber(REPORTS, batch=3)(handler)  # type: ignore[arg-type,var-annotated]
        assert (made.message_type, made.batch, made.takes_delivery) == (Report, 3, False)
    typed: Any = subscriber(UNTYPED, batch=1)(add_up.function)
    assert typed.message_type is Report
    assert subscriber(ROWS, batch=1)(rows).message_type is RowMode
    assert subscriber(BY_HAND, batch=1)(by_hand).message_type is Mapping
    given = [delivery(REPORTS, Report(pages)) for pages in (3, 0)]
    assert anyio.run(add_up, given) == [ack(), drop()]


def test_a_handler_of_batches_with_another_parameter_is_refused() -> None:
    async def messages(reports: list[Report]) -> None: ...
    async def one(report: Report) -> None: ...
    async def others(deliveries: list[Delivery[Jobs, HasPages | int]]) -> None: ...
    async def numbers(deliveries: list[Delivery[Jobs, int]]) -> None: ...
    async def other_rows(deliveries: list[Delivery[RowMode, Report]]) -> None: ...
    async def more(deliveries: list[Delivery], delivery: Delivery) -> None: ...
    async def sets(deliveries: set[Delivery]) -> None: ...
    async def bare(deliveries: list[Delivery]) -> None: ...
    def not_async(deliveries: list[Delivery]) -> None: ...

    wanted = r"write \w+: list\[Delivery\[Jobs, Report\]\]"
    for handler, match in (
        (messages, rf"the list of deliveries, not list\[.*Report\]; {wanted}"),
        (one, rf"the list of deliveries, not Report; {wanted}"),
        (sets, "the list of deliveries, not set"),
        (numbers, rf"deliveries of int, but the queue's messages are Report; {wanted}"),
        (other_rows, rf"of rows RowMode, but the queue's are Jobs; {wanted}"),
        (more, "takes the list of deliveries alone, so nobody would fill 'delivery'"),
        (not_async, "is not async"),
    ):
        with pytest.raises(DeclarationError, match=match):
            subscriber(REPORTS, batch=3)(handler)  # type: ignore[arg-type]
    subscriber(REPORTS, batch=3)(others)  # type: ignore[arg-type]
    with pytest.raises(
        DeclarationError, match=r"neither the queue .*list\[Delivery\[Jobs, YourMessage\]"
    ):
        subscriber(UNTYPED, batch=3)(bare)
