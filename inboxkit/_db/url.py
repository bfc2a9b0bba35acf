"""Reads a database's URL."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from inboxkit._db.mysql_url import read_target
from inboxkit._db.sqlite_session import MEMORY
from inboxkit.abc import DialectName
from inboxkit.errors import DeclarationError

__all__ = ["DatabaseUrl", "parse_url"]

_DIALECTS: Final[dict[str, DialectName]] = {
    "mariadb": "mysql",
    "mysql": "mysql",
    "postgres": "postgres",
    "postgresql": "postgres",
    "sqlite": "sqlite",
}
_DRIVERS: Final[dict[DialectName, tuple[str, ...]]] = {
    "mysql": ("asyncmy", "pymysql"),
    "postgres": ("asyncpg", "psycopg"),
    "sqlite": ("aiosqlite", "thread"),
}
_FORMS: Final = (
    "write sqlite:///relative.db, sqlite:////absolute.db, sqlite:///:memory:, "
    "postgresql://user@host/database, mariadb://user@host/database or mysql://user@host/database, "
    "with a driver's name if need be, as in postgresql+psycopg://"
)


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """Where a database is."""

    dialect: DialectName
    driver: str | None
    """The driver that the URL names; None: the running backend's own."""
    location: str = field(repr=False)
    """SQLite: the absolute path or ``:memory:``. Servers: the URL, without a driver's name."""
    shown: str
    """The URL without its password."""


def parse_url(url: str) -> DatabaseUrl:
    """Read a URL; nothing connects.

    Raises:
        DeclarationError: It is not one of ours.
    """
    if not isinstance(url, str):
        raise DeclarationError(
            f"a database's URL must be a str, not {type(url).__name__}; {_FORMS}"
        )
    scheme, separator, rest = url.partition("://")
    name, _, driver = scheme.partition("+")
    if not separator or name not in _DIALECTS:
        raise DeclarationError(f"{_without_password(url)!r} is not a database's URL; {_FORMS}")
    dialect = _DIALECTS[name]
    if scheme != name and driver not in _DRIVERS[dialect]:
        raise DeclarationError(
            f"{scheme}:// names no driver; {name} has {' and '.join(_DRIVERS[dialect])}; {_FORMS}"
        )
    locate = _LOCATE[dialect]
    return DatabaseUrl(dialect, driver or None, locate(url, rest), _without_password(url))


def _sqlite_path(url: str, rest: str) -> str:
    """The path is taken as it stands, without percent-decoding; relative to this directory, now."""
    if not rest.startswith("/") or rest == "/":
        raise DeclarationError(f"{url!r} names no file; {_FORMS}")
    path = rest[1:]
    if "?" in path or "\0" in path:
        raise DeclarationError(f"{url!r}: a SQLite URL takes no options; {_FORMS}")
    return path if path == MEMORY else str(Path(path).absolute())


def _postgres_url(url: str, rest: str) -> str:
    location = f"postgresql://{rest}"
    try:
        parts = urlsplit(location)
        if "," not in parts.netloc:  # several hosts are for the driver to read
            _ = parts.port
    except ValueError as error:
        raise DeclarationError(f"{_without_password(url)!r}: {error}; {_FORMS}") from None
    return location


def _mysql_url(url: str, rest: str) -> str:
    location = f"mysql://{rest}"
    try:
        read_target(location)
    except ValueError as error:
        raise DeclarationError(f"{_without_password(url)!r}: {error}; {_FORMS}") from None
    return location


_LOCATE: Final[dict[DialectName, Callable[[str, str], str]]] = {
    "mysql": _mysql_url,
    "postgres": _postgres_url,
    "sqlite": _sqlite_path,
}


def _without_password(url: str) -> str:
    shown = re.sub(r"(://[^:/?#@]*):[^@/]*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&#]*", r"\1***", shown)
