"""pydantic's models as messages: through publish, the table and the handler, by their own rules."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pydantic", reason="pydantic is in the extra dev")

from pydantic import BaseModel, ConfigDict, Field, field_validator

from inboxkit import Broker, Database, EncodeError, Inbox, InboxQueue, Service, role, subscriber
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock


class Line(BaseModel):
    sku: str
    price: Decimal = Field(gt=0)


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True, frozen=True)

    number: int
    placed: datetime
    lines: list[Line] = []
    note: str | None = Field(default=None, alias="theirNote")

    @field_validator("note")
    @classmethod
    def polite(cls, note: str | None) -> str | None:
        if note is not None and "rude" in note:
            raise ValueError(f"how dare you say {note}")
        return note


@dataclass
class Envelope:
    order: Order


class Job(Inbox, table="order_jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


ORDERS = InboxQueue(Job, "orders", Order)
ENVELOPES = InboxQueue(Job, "envelopes", Envelope)


async def test_models_are_messages(
    inbox_database: Database, frozen_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="inboxkit")
    for statement in create_table(get_dialect(inbox_database.dialect), Job.spec):
        await inbox_database.execute(statement)
    seen: list[Any] = []

    @subscriber(ORDERS)
    async def take(order: Order) -> None:
        seen.append(order)

    @subscriber(ENVELOPES)
    async def unpack(envelope: Envelope) -> None:
        seen.append(envelope)

    app = Service("orders", Broker(inbox_database))
    app.include(take, max_attempts=1, dead_letter="orders.dead")
    app.include(unpack, max_attempts=1, dead_letter="orders.dead")
    order = Order(
        number=1,
        placed=datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        lines=[Line(sku="a", price=Decimal("1.10"))],
        note="please",
    )
    async with TestApp(app) as running:
        await running.publish(ORDERS, order)
        await running.publish(ENVELOPES, Envelope(order))
        assert seen == [order, Envelope(order)]
        assert type(seen[0].lines[0].price) is Decimal
        with pytest.raises(EncodeError, match="takes messages of type Order, not dict"):
            await running.publish(ORDERS, order.model_dump())  # type: ignore[call-overload]
        wrong = [
            ("orders", {"number": "hunter2", "placed": "2030-01-01T00:00:00Z"}, r"int_parsing"),
            ("orders", {"number": 1}, r"missing .*\$\.placed"),
            (
                "orders",
                {"number": 1, "placed": 0, "lines": [{"sku": "hunter2", "price": -1}]},
                r"greater_than .*\$\.lines\[0\]\.price",
            ),
            (
                "orders",
                {"number": 1, "placed": 0, "theirNote": "rude hunter2"},
                r"value_error .*\$\.theirNote",
            ),
            ("envelopes", {"order": {"number": 1, "note": "hunter2"}}, r"\$"),
        ]
        for group, payload, reason in wrong:
            caplog.clear()
            insert = "INSERT INTO order_jobs (name, attempt, payload) VALUES ($1, 1, $2)"
            await inbox_database.execute(insert, group, json.dumps(payload).encode())
            running.broker.wake(group)
            await running.settle()
            (failed,) = [r for r in caplog.records if "DecodeError" in r.getMessage()]
            assert failed.exc_info is not None
            text = str(failed.exc_info[1])
            assert re.search(reason, text), text
            assert "hunter2" not in logging.Formatter().format(failed)
        assert len(seen) == 2
        assert len(await running.dead(Job)) == len(wrong)
