"""Whether a message is one that a queue declares, as far as its class tells."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from .annotations import members
from .handler import may_take

__all__ = ["fits"]

_ARRAYS: Final = (list, tuple, set, frozenset)
_RAW: Final = (str, bytes, bytearray, memoryview)


def fits(message: Any, declared: Any) -> bool:
    """Whether handlers that expect `declared` may be given what is read back of `message`.

    True where its class alone does not tell: what is inside of it, a Protocol, a Literal.
    """
    return any(_fits(message, kind) for kind in members(declared))


def _fits(message: Any, kind: Any) -> bool:
    if kind is bytes:
        return isinstance(message, bytes | bytearray | memoryview)
    if hasattr(kind, "__total__"):  # a TypedDict
        return isinstance(message, dict)
    if kind is Decimal and isinstance(message, int | float):
        return True
    if getattr(kind, "__origin__", kind) in _ARRAYS and isinstance(message, _ARRAYS):
        return True
    if getattr(kind, "_is_protocol", False):
        return not isinstance(message, _RAW)
    return may_take(kind, type(message))
