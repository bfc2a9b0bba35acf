"""Recommended tables, for `inboxkit ddl` and the error about a missing one. inboxkit itself never runs
it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inboxkit._core.spec import Column, InboxSpec, Role

from .column_types import must_be_nullable

if TYPE_CHECKING:
    from .dialect import Dialect

__all__ = [
    "Index",
    "as_if_missing",
    "claim_keys",
    "claim_purpose",
    "create_missing",
    "create_table",
    "finished_keys",
    "finished_purpose",
    "lease_purpose",
    "not_null",
]


@dataclass(frozen=True, slots=True)
class Index:
    """One recommended index."""

    purpose: str
    """What walks it, for people."""
    columns: tuple[str, ...]
    """Its keys, as described."""
    text: str
    """The statement that makes it."""
    key: str = ""
    """How CREATE TABLE says it, where CREATE INDEX has no IF NOT EXISTS (MySQL)."""


def claim_purpose(spec: InboxSpec) -> str:
    """What the index of waiting rows is for."""
    if spec.fifo:
        return "FIFO: the head of each group, also while it is in work"
    return "claim: rows that wait, in claim order"


def lease_purpose() -> str:
    """What the index of leased rows is for."""
    return "lease expiry: rows in work, by the end of their leases"


def finished_purpose() -> str:
    """What the index of finished rows is for."""
    return "retention: finished rows, oldest first"


def create_table(dialect: Dialect, spec: InboxSpec) -> list[str]:
    """Statements that would make a table and its indexes, in order, without semicolons."""
    return dialect.create_table(spec)


def create_missing(dialect: Dialect, spec: InboxSpec) -> list[str]:
    """The same for a table, or an index, that may be there already, and is then left as it is.

    On MariaDB and MySQL, of which one knows no CREATE INDEX IF NOT EXISTS, one statement makes both.
    """
    made, *_ = dialect.create_table(spec)
    indexes = dialect.indexes(spec)
    if keys := "".join(f",\n    {index.key}" for index in indexes if index.key):
        lines, end, options = made.rpartition("\n)")
        return [as_if_missing(f"{lines}{keys}{end}{options}")]
    return [as_if_missing(text) for text in (made, *(index.text for index in indexes))]


def as_if_missing(text: str) -> str:
    """A CREATE that does nothing where there is such a thing already."""
    create, kind, rest = text.split(" ", 2)
    return f"{create} {kind} IF NOT EXISTS {rest}"


def claim_keys(spec: InboxSpec) -> Iterator[tuple[Role, Column]]:
    """The columns of the claim's index: the group, then the claim order."""
    columns = {role: column for role, column in spec.roles() if role is not Role.DATA}
    for role in (Role.GROUP, Role.PRIORITY, Role.RETRY_AFTER, Role.ID):
        if role in columns:
            yield role, columns[role]


def finished_keys(spec: InboxSpec) -> list[str]:
    """The columns of retention's index."""
    assert spec.processed_at is not None
    return [spec.processed_at.name, spec.id.name]


def not_null(role: Role, column: Column) -> bool:
    """Whether a recommended column is NOT NULL."""
    if role is Role.DATA:
        return False
    # A NULL due time means due now; NOT NULL columns alone let one plain index give the claim order.
    return not must_be_nullable(role) and not (role is Role.RETRY_AFTER and column.default is None)
