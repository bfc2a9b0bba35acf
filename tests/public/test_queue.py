from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from inboxkit import role
from inboxkit._core.spec import Column, InboxSpec
from inboxkit.errors import DeclarationError
from inboxkit.queue import InboxQueue
from inboxkit.table import Inbox


@dataclass
class Report:
    pages: int


class Leased(Inbox, table="leased"):
    id: int = role.id(generated=True)
    name: str = role.group()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Plain(Inbox, table="plain"):
    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class RowMode(Inbox, table="row_mode"):
    id: int = role.id(generated=True)
    target: str


BY_HAND = InboxSpec("by_hand", id=Column("id", generated=True))


def test_a_queue_knows_its_table() -> None:
    queue = InboxQueue(Leased, "reports", Report, poll_interval=timedelta(seconds=3))
    assert queue.row is Leased
    assert queue.spec is Leased.spec
    assert (queue.name, queue.group) == ("reports", "reports")
    assert queue.message is Report
    assert queue.lease is None
    assert queue.poll_interval == timedelta(seconds=3)
    assert repr(queue) == "InboxQueue('leased', 'reports', Report)"


def test_a_queue_of_a_description_by_hand() -> None:
    queue = InboxQueue(BY_HAND, "jobs")
    assert queue.row is None
    assert queue.spec is BY_HAND
    assert queue.group is None
    assert queue.row_mode


def test_without_groups_the_whole_table_is_the_queue() -> None:
    assert InboxQueue(Plain, "anything").group is None


def test_leases_are_rounded_up() -> None:
    assert InboxQueue(Leased, "q", lease=timedelta(milliseconds=400)).lease == timedelta(seconds=1)


@pytest.mark.parametrize("lease", [timedelta(0), timedelta(seconds=-3), 30])
def test_a_lease_is_a_time(lease: Any) -> None:
    with pytest.raises(DeclarationError, match="queue 'q': lease must be"):
        InboxQueue(Leased, "q", lease=lease)


def test_a_lease_needs_its_column() -> None:
    with pytest.raises(
        DeclarationError, match=r"'plain' has no locked_until.*role\.locked_until\(\)"
    ):
        InboxQueue(Plain, "q", lease=timedelta(seconds=30))


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1), 1])
def test_a_poll_interval_is_a_time(interval: Any) -> None:
    with pytest.raises(
        DeclarationError, match="poll_interval must be a timedelta longer than zero"
    ):
        InboxQueue(Plain, "q", poll_interval=interval)


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_queue_has_a_name(name: Any) -> None:
    with pytest.raises(DeclarationError, match="'plain' needs a non-empty name"):
        InboxQueue(Plain, name)


@pytest.mark.parametrize("table", ["plain", Report, Report(1), None])
def test_a_queue_has_a_table(table: Any) -> None:
    with pytest.raises(DeclarationError, match="needs the class of its table"):
        InboxQueue(table, "q")


def test_a_mixin_is_no_table() -> None:
    class Mixin(Inbox):
        id: int = role.id()

    with pytest.raises(DeclarationError, match="names no table"):
        InboxQueue(Mixin, "q")


@pytest.mark.parametrize("message", [Report, bytes, dict[str, int]])
def test_a_table_without_payload_has_no_messages(message: Any) -> None:
    with pytest.raises(DeclarationError, match=r"no payload, so its message is the row, RowMode"):
        InboxQueue(RowMode, "q", message)


def test_a_table_without_payload_may_name_its_rows() -> None:
    assert InboxQueue(RowMode, "q", RowMode).message is RowMode
    assert InboxQueue(BY_HAND, "q", Mapping[str, Any]).message == Mapping[str, Any]  # type: ignore[type-abstract]


def test_the_row_is_no_message_where_there_is_a_payload() -> None:
    with pytest.raises(DeclarationError, match=r"the row is delivery\.row"):
        InboxQueue(Plain, "q", Plain)


@pytest.mark.parametrize("message", [str | None, bytes | int, bytes | str])
def test_messages_that_could_not_be_told_apart(message: Any) -> None:
    with pytest.raises(DeclarationError, match="stored as it is"):
        InboxQueue(Plain, "q", message)


def test_a_message_that_json_does_not_know() -> None:
    class Odd:
        pass

    with pytest.raises(DeclarationError, match=r"queue 'q' of table 'plain'.*Odd"):
        InboxQueue(Plain, "q", Odd)
