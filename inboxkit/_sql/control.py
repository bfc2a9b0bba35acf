"""The control table: one row for each queue that is paused."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from inboxkit._core.spec import Column, InboxSpec
from inboxkit.errors import DeclarationError

from .ddl import as_if_missing
from .dialect import Dialect
from .statement import Reading, Script, Statement, Steps

__all__ = ["QUEUE", "control_spec", "create_control", "read_paused", "resume"]

QUEUE: Final = "queue"
"""The column of the queue's name."""


def control_spec(name: str) -> InboxSpec:
    """Describe a control table: ``queue``, unique, and ``paused_at``.

    Args:
        name: ``table`` or ``schema.table``.

    Raises:
        DeclarationError: It is neither.
    """
    schema, dot, table = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if not table or (dot and not schema) or "." in schema:
        raise DeclarationError(
            f"control_table is the name of a table, as 'table' or 'schema.table', not {name!r}"
        )
    return InboxSpec(
        table,
        schema=schema or None,
        id=Column(QUEUE, type=str),
        columns=(Column("paused_at", type=datetime),),
    )


def create_control(dialect: Dialect, spec: InboxSpec, *, if_missing: bool = False) -> str:
    """The statement that would make it; few rows, so no index but the key's."""
    text = dialect.create_table(spec)[0]
    return as_if_missing(text) if if_missing else text


def read_paused(dialect: Dialect, spec: InboxSpec) -> Script[frozenset[str]]:
    """Read the names of the paused queues."""
    text = f"SELECT {dialect.quote(QUEUE)} FROM {dialect.table(spec.table, spec.schema)}"

    def steps(_reading: Reading) -> Steps[frozenset[str]]:
        answer = yield Statement("control", text)
        return frozenset(row[0] for row in answer.rows)

    return Script("control", steps, "read")


def resume(dialect: Dialect, spec: InboxSpec, queue: str) -> Script[bool]:
    """Forget a queue's pause; whether it was paused."""
    name = dialect.quote(QUEUE)
    text = f"DELETE FROM {dialect.table(spec.table, spec.schema)} WHERE {name} = $1"

    def steps(_reading: Reading) -> Steps[bool]:
        answer = yield Statement("resume", text, (queue,), returns_rows=False)
        return answer.rowcount > 0

    return Script("resume", steps, dialect.lone_write)
