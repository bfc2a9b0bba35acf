"""The oldest servers and libraries that can be served; what they lack is told before it fails."""

from __future__ import annotations

from typing import Final

from inboxkit.errors import ServerTooOldError

__all__ = ["check_mysql", "check_postgres", "check_sqlite"]

_POSTGRES: Final = 12
_SQLITE: Final = (3, 35, 0)
"""RETURNING."""
_MYSQL: Final = {"MariaDB": (10, 6, 0), "MySQL": (8, 0, 1)}
"""SKIP LOCKED."""


def check_postgres(major: int) -> None:
    """Refuse a server that is too old.

    Args:
        major: Its major version.

    Raises:
        ServerTooOldError: It is.
    """
    if major < _POSTGRES:
        raise ServerTooOldError(
            f"the server is PostgreSQL {major}, and inboxkit needs {_POSTGRES} or newer; upgrade it"
        )


def check_mysql(kind: str, version: tuple[int, int, int]) -> None:
    """Refuse a server that is too old.

    Args:
        kind: ``"MariaDB"`` or ``"MySQL"``.
        version: Its version.

    Raises:
        ServerTooOldError: It is.
    """
    if version < _MYSQL[kind]:
        met, needed = (".".join(map(str, one)) for one in (version, _MYSQL[kind]))
        raise ServerTooOldError(
            f"the server is {kind} {met}, and inboxkit needs {needed} or newer; upgrade it"
        )


def check_sqlite(version: tuple[int, ...]) -> None:
    """Refuse a library that is too old.

    Args:
        version: `sqlite3.sqlite_version_info`.

    Raises:
        ServerTooOldError: It is.
    """
    if version < _SQLITE:
        met, needed = (".".join(map(str, one)) for one in (version, _SQLITE))
        raise ServerTooOldError(
            f"Python's sqlite3 is built with SQLite {met}, and inboxkit needs {needed} or newer; "
            "use a Python that is built with a newer one"
        )
