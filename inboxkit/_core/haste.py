"""Until when the waits of a service that ends may last: past its time nobody waits for last words.

A task that is cancelled may still wait a while for a server's answer, shielded, so that it knows what has
become of a statement. Each such wait is short, but they add up, and a server that does not answer makes
all of them last to their ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyio import CancelScope

__all__ = ["ends_by", "hasty", "keeping_time"]


class _Haste:
    """The time of one service, and the scopes that are open in its tasks."""

    def __init__(self) -> None:
        self.deadline = math.inf
        self.scopes: dict[int, CancelScope] = {}


_haste: ContextVar[_Haste | None] = ContextVar("inboxkit_haste", default=None)


@contextmanager
def keeping_time() -> Iterator[None]:
    """The tasks of this block, and those that it starts, keep a time of their own."""
    token = _haste.set(_Haste())
    try:
        yield
    finally:
        _haste.reset(token)


def ends_by(deadline: float) -> None:
    """Have every hasty scope of this service end by then, those that are open now too.

    Args:
        deadline: In the time of scopes' deadlines.
    """
    haste = _haste.get()
    if haste is None:
        return
    haste.deadline = deadline
    for scope in haste.scopes.values():
        scope.deadline = min(scope.deadline, deadline)


@contextmanager
def hasty(scope: CancelScope) -> Iterator[CancelScope]:
    """Enter a scope around a wait that is given up when the service has no time left for it."""
    haste = _haste.get()
    with scope:
        if haste is None:
            yield scope
            return
        scope.deadline = min(scope.deadline, haste.deadline)
        haste.scopes[id(scope)] = scope
        try:
            yield scope
        finally:
            del haste.scopes[id(scope)]
