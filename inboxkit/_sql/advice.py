"""Which recommended indexes a table lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inboxkit._core.spec import Column, InboxSpec

from .ddl import Index
from .dialect import Dialect
from .info import IndexInfo, TableInfo

__all__ = ["missing_indexes"]


def missing_indexes(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> Iterator[Index]:
    """Recommended indexes in whose place no other index serves.

    The first of them is the one that claims need; one of leases makes them cheaper. Indexes with
    further columns do, and those that leave out what is compared with one value anyway.
    """
    claim, *rest = dialect.indexes(spec)
    if not any(_gives_order(spec, info, index) for index in info.indexes):
        yield claim
    lease = spec.locked_until
    even = _names(spec.group, spec.processed_at)
    for index in rest:
        assert lease is not None
        if all(_before(info, found, even, [lease.name]) is None for found in info.indexes):
            yield index


def _gives_order(spec: InboxSpec, info: TableInfo, index: IndexInfo) -> bool:
    even = _names(spec.group, spec.processed_at, spec.locked_until)
    order = _names(spec.priority, spec.retry_after) or [spec.id.name]
    before = _before(info, index, even, order)
    if before is None:
        return False
    # Else a claim walks over the rows of all groups, or over all that was ever finished.
    group, done = spec.group, spec.processed_at
    return (group is None or _is_one_of(info, group.name, before)) and (
        done is None or index.partial or _is_one_of(info, done.name, index.columns)
    )


def _names(*columns: Column | None) -> list[str]:
    return [column.name for column in columns if column is not None]


def _is_one_of(info: TableInfo, name: str, names: Sequence[str]) -> bool:
    return any(info.same(name, other) for other in names)


def _before(
    info: TableInfo, index: IndexInfo, even: Sequence[str], order: Sequence[str]
) -> Sequence[str] | None:
    """What an index has before `order`; None where that is more than columns of `even`, or `order` does
    not follow."""
    at = 0
    while at < len(index.columns) and _is_one_of(info, index.columns[at], even):
        at += 1
    behind = index.columns[at : at + len(order)]
    fits = len(behind) == len(order) and all(map(info.same, behind, order))
    return index.columns[:at] if fits else None
