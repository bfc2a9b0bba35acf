"""Dead letters read: a page of them, or one with all that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from inboxkit._core.json_codec import JSON
from inboxkit._core.spec import Role
from inboxkit._sql.column_types import python_type
from inboxkit._sql.dead import select
from inboxkit._sql.scope import asked
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table
from inboxkit.database import Database
from inboxkit.errors import DecodeError, EncodeError

from .places import DeadLetter

__all__ = ["DeadRow", "parse_id", "read_dead"]


@dataclass(frozen=True, slots=True)
class DeadRow:
    """One dead letter. A value that cannot be read is the DecodeError that says so."""

    letter: DeadLetter
    id: Any
    in_work: bool | None
    """Whether a handler has it; None: its claim form does not show that."""
    values: dict[str, Any]
    """Every described column by its name."""

    def role(self, role: Role) -> Any:
        """The value of the column that plays a role; None without one."""
        column = next((column for each, column in self.letter.spec.roles() if each is role), None)
        return None if column is None else self.values[column.name]

    @property
    def trouble(self) -> str | None:
        """Why a handler could not be given its message; None: it could, or nobody knows its type."""
        spec, queue = self.letter.spec, self.letter.sources[0].queue
        kept = self.role(Role.PAYLOAD)
        if isinstance(kept, DecodeError):
            return str(kept)
        kind = self.letter.sources[0].subscriber.message_type
        if spec.payload is None or kept is None or kind is None:
            return None
        payload = kept.encode() if isinstance(kept, str) else kept
        try:
            (spec.codec or JSON).decode(payload, kind)
        except DecodeError as error:
            return f"queue {queue.name!r} cannot read the payload: {error}"
        except Exception as error:  # noqa: BLE001 - a codec of the service's own may raise anything
            return f"queue {queue.name!r} cannot read the payload: {type(error).__name__}"
        return None


async def read_dead(
    database: Database,
    table: Table,
    letter: DeadLetter,
    *,
    limit: int,
    ids: Sequence[Any] = (),
) -> list[DeadRow]:
    """Read dead letters in the order of their ids.

    Args:
        database: Open.
        table: The dead letter's.
        letter: Whose rows.
        limit: Most rows.
        ids: Driver values; only these. None given: all.
    """

    def steps(reading: Reading) -> Steps[list[DeadRow]]:
        answer = yield from asked(table, select(table, letter.scope, limit=limit, ids=ids))
        rows = (_read(table, letter, row, reading.now) for row in answer.rows)
        return [row for row in rows if letter.scope.holds(_group(row))]

    return await database.run(Script("dead list", steps, "read"))


def _read(table: Table, letter: DeadLetter, row: Sequence[Any], now: datetime) -> DeadRow:
    id = table.id.decode(row[0])
    values = {
        column.name: column.decode(value, id=id)
        for column, value in zip(table.columns, row, strict=True)
    }
    in_work: bool | None = None
    if (lease := table.find(Role.LOCKED_UNTIL)) is not None:
        until = values[lease.name]
        in_work = isinstance(until, datetime) and until > now
    return DeadRow(letter, id, in_work, values)


def _group(row: DeadRow) -> str | None:
    group = row.role(Role.GROUP)
    return group if isinstance(group, str) else None


def parse_id(table: Table, text: str) -> Any:
    """The driver's value of an id as a person writes it.

    Raises:
        ValueError: The column has no such ids.
    """
    kind = python_type(Role.ID, table.id.column)
    family = table.id.info.family.lower()
    if kind is None:
        kind = UUID if family == "uuid" else int if "int" in family else str
    try:
        return table.id.encode(text if kind is str else kind(text))
    except EncodeError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError(
            f"table {table.spec.name!r} has ids of type {kind.__name__}, and {text!r} is none"
        ) from None
