"""Checked by mypy and pyright, not run: a line that ends in ``# error`` must be refused by both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, assert_type
from uuid import UUID

from inboxkit import role
from inboxkit._core.rows import NewRow
from inboxkit._core.spec import Column, InboxSpec
from inboxkit.codec import JSON
from inboxkit.table import Inbox, new_row, row_from


@dataclass
class Mail:
    to: str


class SendMail(Inbox, table="mail_jobs", schema="app", codec=JSON):
    id: int = role.id(generated=True)
    name: str = role.group("queue", fifo=True)
    priority: int = role.priority(default=10)
    account: bytes = role.partition_key()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()
    tags: list[str] = role.column(default_factory=list)
    note: str = ""
    serial: int = role.column(generated=True)
    most: ClassVar[int] = 3


class Other(Inbox, table="other_jobs", advisory_lock="other-{id}"):
    id: UUID = role.id()
    key: str | None = role.partition_key(default="x")
    at: datetime | None = role.retry_after()
    first: int | None = role.priority(default=None)
    attempt: int = role.attempt(default=1)
    payload: str = role.payload("body")


class Mixin(Inbox, schema="app"):
    id: str = role.id("key", default_factory=str)


class Derived(Mixin, table="derived"):
    extra: int


class WrongTypes(Inbox, table="wrong"):
    id: bytes = role.id()  # error
    group: int = role.group()  # error
    priority: str = role.priority(default=1)  # error
    partition_key: datetime = role.partition_key()  # error
    retry_after: datetime = role.retry_after()  # error
    attempt: str = role.attempt(generated=True)  # error
    processed_at: datetime = role.processed_at()  # error
    locked_until: datetime = role.locked_until()  # error
    headers: str = role.headers()  # error
    payload: int = role.payload()  # error
    column: str = role.column(default=3)  # error


class WrongArguments(Inbox, table="wrong"):
    a: int = role.priority(default=1, generated=True)  # error
    b: str = role.group(fifo="yes")  # error
    c: int = role.attempt(default=2)  # error
    d: int = role.attempt(init=True)  # error
    e: str = role.column(default="", default_factory=str)  # error
    f: bytes = role.payload(default=b"")  # error


class WrongClass(Inbox, table=3): ...  # error


class WrongSetting(Inbox, table="x", tabel="y"): ...  # error


class WrongCodec(Inbox, table="x", codec=object()): ...  # error


def rows() -> None:
    row = SendMail(name="mails", account=b"a")
    assert_type(row.id, int)
    assert_type(row.attempt, int)
    assert_type(row.locked_until, datetime | None)
    assert_type(row.tags, list[str])
    assert_type(row.spec, InboxSpec)
    assert_type(SendMail.spec, InboxSpec)
    assert_type(new_row(row), NewRow)
    SendMail("mails", b"a")  # error
    SendMail(name="mails")  # error
    SendMail(name="mails", account=b"a", id=1)  # error
    SendMail(name="mails", account=b"a", attempt=1)  # error
    SendMail(name="mails", account=b"a", payload=b"")  # error
    SendMail(name="mails", account=b"a", serial=1)  # error
    SendMail(name="mails", account="a")  # error
    Other(id=UUID(int=1), at=None)
    Other(at=None)  # error
    Derived(extra=1)
    Derived(id="a", extra="b")  # error
    print(row.idd)  # error


def of() -> None:
    row = SendMail.of(Mail("a"), name="mails", account=b"a", priority=3, tags=["x"])
    assert_type(row, SendMail)
    SendMail.of(Mail("a"), name="mails")  # error
    SendMail.of(Mail("a"), name="mails", account=b"a", priorty=3)  # error
    SendMail.of(Mail("a"), name="mails", account=b"a", priority="3")  # error
    SendMail.of(Mail("a"), name="mails", account=b"a", id=3)  # error
    SendMail.of(name="mails", account=b"a")  # error
    SendMail.of(message=Mail("a"), name="mails", account=b"a")  # error
    assert_type(SendMail.stored(id=1, attempt=2), SendMail)


def by_hand() -> None:
    spec = InboxSpec("jobs", id=Column("id", generated=True), payload=Column("payload"))
    assert_type(spec.of(Mail("a"), anything=1), NewRow)
    assert_type(row_from(SendMail, {}), SendMail)
    InboxSpec("jobs")  # error
    InboxSpec("jobs", id="id")  # error
    spec.table = "other"  # error
