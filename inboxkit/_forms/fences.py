"""Fences as driver values."""

from __future__ import annotations

from typing import Any

from inboxkit._core.spec import Role
from inboxkit._sql.lease import Held
from inboxkit._sql.table import Table
from inboxkit.abc import Fence

__all__ = ["held"]


def held(table: Table, fence: Fence, value: Any = None) -> Held:
    """What a statement compares a row with.

    Args:
        table: The row's.
        fence: What the row must still hold.
        value: What it is given, as a driver value.
    """
    lease = table.get(Role.LOCKED_UNTIL)
    tokens = tuple(lease.encode(token) for token in fence.tokens)
    return Held(table.id.encode(fence.id), tokens, fence.attempt, value)
