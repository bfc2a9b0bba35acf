"""MariaDB's and MySQL's identifiers."""

from __future__ import annotations

from typing import Final

from inboxkit.errors import DialectError

__all__ = ["quote", "shortened", "table"]

_LONGEST: Final = 64
"""Characters."""
_LAST_OF_PLANE: Final = "\uffff"


def quote(name: str) -> str:
    """Quote an identifier.

    Raises:
        DialectError: The servers cannot have such a name.
    """
    if not name or "\0" in name:
        raise DialectError(f"MariaDB and MySQL have no name {name!r}")
    if any(one > _LAST_OF_PLANE or "\ud800" <= one <= "\udfff" for one in name):
        raise DialectError(
            f"MariaDB's and MySQL's names have no characters beyond U+FFFF, and no surrogates, as "
            f"{name!r} has; choose another name"
        )
    if name.endswith(" "):
        raise DialectError(
            f"MariaDB's and MySQL's names do not end with a space, as {name!r} does; choose another "
            "name"
        )
    if len(name) > _LONGEST:
        raise DialectError(
            f"MariaDB's and MySQL's names have at most {_LONGEST} characters, and {name!r} has "
            f"{len(name)}; shorten it"
        )
    return "`" + name.replace("`", "``") + "`"


def table(name: str, schema: str | None) -> str:
    """Quote a table's name; a schema is a database here."""
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"


def shortened(name: str, suffix: str) -> str:
    """A name for something that belongs to `name`, short enough."""
    return name[: _LONGEST - len(suffix)] + suffix
