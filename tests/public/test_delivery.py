from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from inboxkit import role
from inboxkit._runtime.delivery import Delivery
from inboxkit.clock import SystemClock
from inboxkit.errors import DeclarationError
from inboxkit.queue import InboxQueue
from inboxkit.table import Inbox

END = datetime(2030, 1, 1, tzinfo=UTC)


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    payload: bytes = role.payload()


QUEUE = InboxQueue(Jobs, "reports", str)


async def make(**given: Any) -> Delivery[Jobs, str]:
    settings: dict[str, Any] = {
        "id": 7,
        "message": "hello",
        "attempt": 2,
        "group": None,
        "key": None,
        "headers": {"a": "b"},
        "row": Jobs.stored(id=7),
        "queue": QUEUE,
        "database": None,
        "state": "state",
        "clock": SystemClock(),
        "lost": anyio.Event,
        "deadline": lambda: END,
        "publish": None,
    }
    return Delivery(**(settings | given))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_delivery_shows_its_facts(backend: str) -> None:
    async def main() -> None:
        delivery = await make()
        assert (delivery.id, delivery.message, delivery.attempt) == (7, "hello", 2)
        assert delivery.row == Jobs.stored(id=7)
        assert delivery.headers == {"a": "b"}
        assert delivery.queue is QUEUE
        assert delivery.state == "state"
        assert delivery.deadline == END
        assert not delivery.lost.is_set()
        assert repr(delivery) == "<Delivery 7 of 'reports', attempt=2>"

    anyio.run(main, backend=backend)


def test_the_deadline_is_asked_each_time() -> None:
    async def main() -> None:
        ends: list[datetime | None] = [None, END]
        delivery = await make(deadline=ends.pop)
        assert delivery.deadline == END
        assert delivery.deadline is None

    anyio.run(main)


def test_without_an_attempt_column_the_error_names_the_cure() -> None:
    async def main() -> None:
        delivery = await make(attempt=None)
        with pytest.raises(
            DeclarationError, match=r"'jobs' has no attempt.*role\.attempt\(generated=True\)"
        ):
            _ = delivery.attempt
        assert repr(delivery) == "<Delivery 7 of 'reports'>"

    anyio.run(main)


def test_publish_is_the_brokers() -> None:
    async def main() -> None:
        seen: list[Any] = []

        async def publish(*args: Any, **kwargs: Any) -> int:
            seen.append((args, kwargs))
            return 99

        delivery = await make(publish=publish)
        assert await delivery.publish(QUEUE, "a", queue=1, message=2) == 99
        assert await delivery.publish("name", {"b": 1}, within="tx") == 99
        assert seen == [
            ((QUEUE, "a"), {"within": None, "queue": 1, "message": 2}),
            (("name", {"b": 1}), {"within": "tx"}),
        ]

    anyio.run(main)


def test_a_delivery_takes_no_other_attributes() -> None:
    async def main() -> None:
        delivery = await make()
        with pytest.raises(AttributeError):
            delivery.mesage = 1  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"transactional=True\).*TransactionalDelivery"):
            _ = delivery.tx  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="no attribute 'text'"):
            _ = delivery.text  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            delivery.message = "x"  # type: ignore[misc]

    anyio.run(main)
