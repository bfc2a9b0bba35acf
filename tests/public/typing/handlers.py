"""Checked by mypy and pyright, not run: a line that ends in ``# error`` must be refused by both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypedDict, assert_type

import msgspec

from inboxkit import role
from inboxkit._core.outcomes import Ack, Outcome, ack, retry
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._runtime.delivery import Delivery, TransactionalDelivery
from inboxkit.database import Transaction
from inboxkit.queue import InboxQueue
from inboxkit.subscriber import subscriber
from inboxkit.table import Inbox


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class OtherJobs(Inbox, table="other_jobs"):
    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Rows(Inbox, table="rows"):
    id: int = role.id(generated=True)


@dataclass
class Report:
    pages: int


@dataclass
class LongReport(Report):
    chapters: int


class Struct(msgspec.Struct):
    a: int


class Typed(TypedDict):
    a: int


SPEC = InboxSpec("jobs", id=Column("id"), payload=Column("payload"))

REPORTS = InboxQueue(Jobs, "reports", Report, lease=timedelta(minutes=1))
LONG = InboxQueue(Jobs, "long", LongReport)
STRUCTS = InboxQueue(Jobs, "structs", Struct)
TYPED = InboxQueue(Jobs, "typed", Typed)
LISTS = InboxQueue(Jobs, "lists", list[int])
RAW = InboxQueue(Jobs, "raw", bytes)
UNTYPED = InboxQueue(Jobs, "untyped")
BY_HAND = InboxQueue(SPEC, "by hand", Report)
BY_HAND_UNTYPED = InboxQueue(SPEC, "by hand")
ROWS = InboxQueue(Rows, "rows")
TYPED_ROWS = InboxQueue(Rows, "rows", Rows)


def queues() -> None:
    assert_type(REPORTS, InboxQueue[Jobs, Report])
    assert_type(TYPED, InboxQueue[Jobs, Typed])
    assert_type(LISTS, InboxQueue[Jobs, list[int]])
    assert_type(UNTYPED, InboxQueue[Jobs, Any])
    assert_type(BY_HAND, InboxQueue[Mapping[str, Any], Report])
    assert_type(REPORTS.row, type[Jobs] | None)
    InboxQueue("jobs", "reports", Report)  # error
    InboxQueue(Report, "reports", Report)  # error
    InboxQueue(Jobs, "reports", Report, lease=30)  # error
    InboxQueue(Jobs)  # error
    InboxQueue(Jobs, "reports", Report, timedelta(1))  # error


@subscriber(REPORTS)
async def plain(report: Report) -> None: ...
@subscriber(REPORTS)
async def answers(report: Report) -> Outcome:
    return retry() if report.pages else ack()


@subscriber(REPORTS)
async def bare_delivery(report: Report, delivery: Delivery) -> Ack:
    return ack()


@subscriber(REPORTS)
async def full_delivery(report: Report, delivery: Delivery[Jobs, Report]) -> None: ...
@subscriber(LONG)
async def wider_message(report: Report, delivery: Delivery[Inbox, Report]) -> None: ...
@subscriber(REPORTS)
async def anything(report: object) -> None: ...
@subscriber(REPORTS)
async def with_default(report: Report, verbose: bool = False) -> None: ...
@subscriber(STRUCTS)
async def struct(message: Struct) -> None: ...
@subscriber(TYPED)
async def typed(message: Typed, delivery: Delivery[Jobs, Typed]) -> None: ...
@subscriber(LISTS)
async def numbers(message: list[int]) -> None: ...
@subscriber(RAW)
async def raw(message: bytes) -> None: ...
@subscriber(UNTYPED)
async def union(message: Report | Struct, delivery: Delivery) -> None: ...
@subscriber(BY_HAND)
async def by_hand(message: Report, delivery: Delivery[Mapping[str, Any], Report]) -> None: ...
@subscriber(BY_HAND_UNTYPED)
async def by_hand_untyped(message: dict[str, int], delivery: Delivery) -> None: ...
@subscriber(ROWS)
async def rows(row: Rows, delivery: Delivery) -> None: ...
@subscriber(TYPED_ROWS)
async def typed_rows(row: Rows, delivery: Delivery[Rows, Rows]) -> None: ...


@subscriber(REPORTS, batch=10)
async def batch(deliveries: list[Delivery[Jobs, Report]]) -> list[Outcome]:
    return [retry() if delivery.message.pages else ack() for delivery in deliveries]


@subscriber(REPORTS, batch=10)
async def batch_of_acks(deliveries: list[Delivery[Jobs, Report]]) -> list[Ack]:
    return [ack() for _ in deliveries]


@subscriber(REPORTS, batch=10)
async def batch_for_all(deliveries: list[Delivery]) -> Outcome | None: ...
@subscriber(LONG, batch=10)
async def batch_of_wider(deliveries: Sequence[Delivery[Inbox, Report]]) -> None: ...
@subscriber(ROWS, batch=10)
async def batch_of_rows(deliveries: list[Delivery[Rows, Rows]]) -> None: ...
@subscriber(REPORTS, batch=None)
async def no_batch(report: Report) -> None: ...
@subscriber(REPORTS, batch=10)  # error
async def batch_of_messages(reports: list[Report]) -> None: ...
@subscriber(REPORTS, batch=10)  # error
async def batch_of_others(deliveries: list[Delivery[Jobs, Struct]]) -> None: ...
@subscriber(REPORTS, batch=10)  # error
async def batch_of_other_rows(deliveries: list[Delivery[OtherJobs, Report]]) -> None: ...
@subscriber(REPORTS, batch=10)  # error
async def batch_of_one(report: Report) -> None: ...
@subscriber(REPORTS, batch=10)  # error
async def batch_and_more(deliveries: list[Delivery], delivery: Delivery) -> None: ...
@subscriber(REPORTS, batch=10)  # error
async def batch_that_counts(deliveries: list[Delivery]) -> list[int]:
    return [1]


@subscriber(REPORTS)  # error
async def list_without_batch(deliveries: list[Delivery]) -> list[Outcome]:
    return []


async def batch_calls(delivery: Delivery[Jobs, Report], other: Delivery[Jobs, Struct]) -> None:
    assert_type(await batch([delivery]), list[Outcome])
    await batch(delivery)  # error
    await batch([other])  # error
    subscriber(REPORTS, batch="10")  # error


@subscriber(REPORTS, transactional=True)
async def in_transaction(report: Report, delivery: TransactionalDelivery[Jobs, Report]) -> Ack:
    assert_type(delivery.tx, Transaction)
    assert_type(delivery.message, Report)
    return ack()


@subscriber(REPORTS, transactional=True)
async def in_any_transaction(report: Report, delivery: TransactionalDelivery) -> None: ...
@subscriber(REPORTS)  # error
async def not_declared(report: Report, delivery: TransactionalDelivery) -> None: ...
@subscriber(REPORTS, transactional=True)  # error
async def without_delivery(report: Report) -> None: ...
@subscriber(REPORTS, transactional=True)  # error
async def of_other_rows(report: Report, delivery: TransactionalDelivery[OtherJobs]) -> None: ...


class Handlers:
    async def handle(self, report: Report, delivery: Delivery) -> Outcome:
        return ack()

    async def __call__(self, report: Report) -> None: ...


async def with_client(client: str, report: Report) -> None: ...


subscriber(REPORTS)(Handlers().handle)
subscriber(REPORTS)(Handlers())
subscriber(REPORTS)(partial(with_client, "client"))
subscriber(LISTS)(Handlers().handle)  # error


@subscriber(REPORTS)  # error
async def other_message(report: Struct) -> None: ...
@subscriber(REPORTS)  # error
async def narrower_message(report: LongReport) -> None: ...
@subscriber(REPORTS)  # error
def not_async(report: Report) -> None: ...
@subscriber(REPORTS)  # error
async def other_answer(report: Report) -> int:
    return 3


@subscriber(REPORTS)  # error
async def other_delivery(report: Report, delivery: Delivery[Jobs, Struct]) -> None: ...
@subscriber(REPORTS)  # error
async def other_row(report: Report, delivery: Delivery[OtherJobs, Report]) -> None: ...
@subscriber(REPORTS)  # error
async def not_a_delivery(report: Report, attempt: int) -> None: ...
@subscriber(REPORTS)  # error
async def no_message() -> None: ...
@subscriber(REPORTS)  # error
async def too_many(report: Report, delivery: Delivery, client: str) -> None: ...


async def calls(delivery: Delivery[Jobs, Report]) -> None:
    assert_type(await answers(Report(1)), Outcome)
    assert_type(await bare_delivery(Report(1), delivery), Ack)
    await full_delivery(Report(1), delivery)
    await answers(Struct(1))  # error
    await answers()  # error
    await bare_delivery(Report(1))  # error
    assert_type(answers.queue, InboxQueue[Jobs, Report])


async def deliveries(delivery: Delivery[Jobs, Report], bare: Delivery) -> None:
    assert_type(delivery.message, Report)
    assert_type(delivery.row, Jobs)
    assert_type(delivery.attempt, int)
    assert_type(delivery.deadline, datetime | None)
    assert_type(bare.message, Any)
    assert_type(bare.row, Any)
    wider: Delivery[Inbox, object] = delivery
    narrower: Delivery[Jobs, LongReport] = delivery  # error
    delivery.message = Report(2)  # error
    print(wider, narrower, delivery.tx)  # error


async def publishing(delivery: Delivery) -> None:
    await delivery.publish(REPORTS, Report(1), name="x", within=None)
    await delivery.publish(REPORTS, LongReport(1, 2))
    await delivery.publish(TYPED, Typed(a=1))
    await delivery.publish(UNTYPED, "anything")
    await delivery.publish("by name", Report(1))
    await delivery.publish(REPORTS, Struct(1))  # error
    await delivery.publish(TYPED, {"b": 1})  # error
    await delivery.publish(3, Report(1))  # error
    await delivery.publish(REPORTS)  # error
