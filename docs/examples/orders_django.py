"""Django: a job with each order, in `transaction.atomic()`, and a wake at its commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections, models, transaction

from inboxkit import Inbox, InboxQueue, insert_statements, role, subscriber

DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql"}


def insert_in_django(*rows: Inbox, using: str = "default", on_conflict: Any = "error") -> list[Any]:
    """`insert_rows` on Django's connection, inside its transaction; returns the ids.

    A row that `on_conflict="ignore"` leaves out has no id here.
    """
    connection = connections[using]
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("write jobs inside transaction.atomic()")
    ids: list[Any] = []
    statements = insert_statements(DIALECTS[connection.vendor], *rows, on_conflict=on_conflict)  # type: ignore[arg-type]
    for statement in statements:
        with connection.wrap_database_errors, open_cursor(connection) as cursor:
            cursor.execute(statement.text, statement.parameters)
            if connection.vendor == "mysql":
                ids.append(cursor.lastrowid)  # of the first row
            else:
                ids += [id for (id,) in cursor.fetchall()]
    return ids


def open_cursor(connection: Any) -> Any:
    """The driver's own cursor: the statements have its placeholders, ``$1`` for psycopg."""
    connection.ensure_connection()
    if connection.vendor == "postgresql":
        from psycopg import RawCursor  # noqa: PLC0415 - installed, where Django speaks to PostgreSQL

        return RawCursor(connection.connection)
    return closing(connection.connection.cursor())


class Order(models.Model):
    number = models.IntegerField(primary_key=True)
    email = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "django_orders"


class SendReceipt(Inbox, table="django_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Receipt:
    order: int
    email: str


RECEIPTS = InboxQueue(SendReceipt, "receipts", Receipt)


@subscriber(RECEIPTS)
async def send(receipt: Receipt) -> None: ...


def place_order(number: int, email: str, wake: Callable[[], object] | None = None) -> None:
    """A view's work: order and job are one commit.

    Args:
        number: The order's.
        email: Where the receipt goes.
        wake: Called after the commit: tells a service in this process to look at once. None: it is
            another process, which finds the row at its next poll.
    """
    with transaction.atomic():
        Order.objects.create(number=number, email=email)
        insert_in_django(SendReceipt.of(Receipt(number, email)))
        if wake is not None:
            transaction.on_commit(wake)
