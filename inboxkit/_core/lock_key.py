"""Keys of advisory locks: literal text and column names, such as ``jobs-{id}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["KeyField", "KeyPart", "parse_key", "render_key"]


@dataclass(frozen=True, slots=True)
class KeyField:
    """A column's place in a key."""

    name: str
    """The name that Python code uses for the column."""


KeyPart: TypeAlias = str | KeyField


def parse_key(text: str) -> tuple[KeyPart, ...]:
    """Split a key into literal text and fields; ``{{`` and ``}}`` are braces themselves.

    Raises:
        ValueError: A brace is left open or stands alone, or names nothing; says which and where.
    """
    parts: list[KeyPart] = []
    literal = ""
    for part in _pieces(text):
        if isinstance(part, str):
            literal += part
            continue
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(part)
    if literal:
        parts.append(literal)
    return tuple(parts)


def _pieces(text: str) -> Iterator[KeyPart]:
    at = 0
    while at < len(text):
        if text.startswith(("{{", "}}"), at):
            yield text[at]
            at += 2
        elif text[at] == "{":
            end = text.find("}", at)
            if end < 0:
                raise ValueError(f"the brace at position {at} is never closed")
            name = text[at + 1 : end]
            if not name.strip():
                raise ValueError(f"the braces at position {at} are empty")
            if "{" in name:
                raise ValueError(f"the brace at position {at} is not closed before the next")
            yield KeyField(name.strip())
            at = end + 1
        elif text[at] == "}":
            raise ValueError(f"the brace at position {at} closes nothing")
        else:
            yield text[at]
            at += 1


def render_key(parts: tuple[KeyPart, ...], values: Mapping[str, Any]) -> str:
    """Return the key of one row.

    Args:
        parts: What `parse_key` returned.
        values: By the names that the key uses.
    """
    return "".join(part if isinstance(part, str) else str(values[part.name]) for part in parts)
