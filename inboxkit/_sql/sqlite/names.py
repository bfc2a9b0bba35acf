"""SQLite's identifiers."""

from __future__ import annotations

from inboxkit.errors import DialectError

__all__ = ["quote", "table"]


def quote(name: str) -> str:
    """Quote an identifier with backticks.

    Not with double quotes: SQLite silently takes an unknown double-quoted name for a string
    constant, so that a misspelt column would pass every check.
    """
    if not name or "\0" in name:
        raise DialectError(f"SQLite has no name {name!r}")
    return "`" + name.replace("`", "``") + "`"


def table(name: str, schema: str | None) -> str:
    """Quote a table's name."""
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"
