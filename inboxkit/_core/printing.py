"""Values in messages and logs: cut where they are long, so that no payload is shown whole."""

from __future__ import annotations

from typing import Any

__all__ = ["shorten"]

_LONGEST = 80


def shorten(value: Any) -> str:
    """Return a value's repr; the start and the length of a long one."""
    if isinstance(value, bytes | str) and len(value) > _LONGEST:
        return f"{value[: _LONGEST // 4]!r}…({len(value)} {'bytes' if isinstance(value, bytes) else 'characters'})"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
