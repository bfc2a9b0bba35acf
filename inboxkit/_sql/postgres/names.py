"""PostgreSQL's identifiers."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from inboxkit.errors import DialectError

__all__ = ["quote", "shortened", "table"]

_LONGEST: Final = 63
"""Bytes. The server cuts a longer name short, with a notice that no driver shows."""


def quote(name: str) -> str:
    """Quote an identifier.

    Raises:
        DialectError: PostgreSQL would cut the name, or cannot have it.
    """
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise DialectError(f"PostgreSQL has no name {name!r}: a lone surrogate") from None
    if not name or "\0" in name:
        raise DialectError(f"PostgreSQL has no name {name!r}")
    if length > _LONGEST:
        raise DialectError(
            f"PostgreSQL's names have at most {_LONGEST} bytes, and {name!r} has {length}; shorten it"
        )
    return '"' + name.replace('"', '""') + '"'


def table(name: str, schema: str | None) -> str:
    """Quote a table's name."""
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"


def shortened(name: str, suffix: str) -> str:
    """A name for something that belongs to `name`, short enough, and to no other: an index has its name
    in the whole schema."""
    whole = name.encode()
    if len(whole) + len(suffix) > _LONGEST:
        suffix = f"_{sha256(whole).hexdigest()[:8]}{suffix}"
    kept = whole[: _LONGEST - len(suffix)].decode(errors="ignore")
    return kept + suffix
