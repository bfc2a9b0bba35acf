"""Which parts a claim looks at apart, by the indexes that it finds.

"Free, or its lease has ended" and "due now, or its time has come" are each two ranges of an index.
In one condition they are none: the database then walks every row that is in work, or not yet due.
Apart, each part stops at its limit, and the best of all are the claim. But a part without an index
of its own would walk the whole queue to find nothing, so a table is only taken apart where the
indexes are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from inboxkit._core.spec import Role

from .table import Table

__all__ = ["Part", "branches", "is_apart", "together"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that a claim looks for by themselves."""

    condition: str
    """On due time and lease of row `q`; empty where there is neither."""
    is_even: bool
    """The due times are all NULL or none: where NULLs stand in an index is all one then."""
    lease: Literal["free", "ended", "either"] = "either"
    """The leases are all NULL, have all ended, or are each of it."""
    has_no_due: bool = False
    """The due times are all NULL: the order need not name them."""


def branches(table: Table, now_due: str, now_lease: str) -> Iterator[Part]:
    """The parts of a claim.

    Args:
        table: The queue's.
        now_due: The clock's reading, to be compared with due times.
        now_lease: The same, to be compared with leases, if the table has them.
    """
    due = _due(table, now_due)
    is_even = len(due) < 2 or is_apart(table, Role.RETRY_AFTER)
    parts = due if due and is_even else [_any(due)]
    numbered = list(enumerate(parts, 1))
    if table.find(Role.LOCKED_UNTIL) is None:
        for n, part in numbered:
            yield Part(part, is_even, has_no_due=n < len(parts))
        return
    lease = table.get(Role.LOCKED_UNTIL).sql
    free, ended = f"q.{lease} IS NULL", f"q.{lease} <= {now_lease}"
    lease_is_apart = is_apart(table, Role.LOCKED_UNTIL)
    waiting = free if lease_is_apart else _any([free, ended])
    for n, part in numbered:
        yield Part(
            _all(part, waiting),
            is_even,
            lease="free" if lease_is_apart else "either",
            has_no_due=n < len(parts),
        )
    if lease_is_apart:
        # Ended leases are few: no need to take these apart further.
        yield Part(_all(_any(due), ended), len(due) < 2, lease="ended")


def together(table: Table, now_due: str, now_lease: str) -> str:
    """The same, as one condition; empty where every row may be claimed."""
    if table.find(Role.LOCKED_UNTIL) is None:
        return _any(_due(table, now_due))
    lease = table.get(Role.LOCKED_UNTIL).sql
    held = _any([f"q.{lease} IS NULL", f"q.{lease} <= {now_lease}"])
    return _all(_any(_due(table, now_due)), held)


def _due(table: Table, now: str) -> list[str]:
    column = table.find(Role.RETRY_AFTER)
    if column is None:
        return []
    come = f"q.{column.sql} <= {now}"
    return [f"q.{column.sql} IS NULL", come] if column.info.nullable else [come]


def is_apart(table: Table, role: Role) -> bool:
    """Whether a column's NULLs and values are looked at apart."""
    column = table.find(role)
    if column is None or not column.info.nullable:
        return False
    # Behind a priority, a range of due times is no range of the index.
    if role is Role.RETRY_AFTER and table.spec.priority is not None:
        return False
    info, spec = table.info, table.spec
    # What is compared with one value, or with NULL, may stand before it.
    even = [one.name for one in (spec.group, spec.processed_at) if one is not None]
    if role is Role.RETRY_AFTER and spec.locked_until is not None and not spec.fifo:
        even.append(spec.locked_until.name)
    for index in info.indexes:
        at = next((n for n, name in enumerate(index.columns) if info.same(name, column.name)), None)
        before = index.columns[:at] if at is not None else ("",)
        if all(any(info.same(name, one) for one in even) for name in before) and (
            spec.group is None or any(info.same(name, spec.group.name) for name in before)
        ):
            return True
    return False


def _any(conditions: list[str]) -> str:
    text = " OR ".join(conditions)
    return f"({text})" if len(conditions) > 1 else text


def _all(*conditions: str) -> str:
    return " AND ".join(condition for condition in conditions if condition)
