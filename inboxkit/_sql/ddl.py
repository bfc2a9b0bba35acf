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
    "claim_keys",
    "claim_purpose",
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
