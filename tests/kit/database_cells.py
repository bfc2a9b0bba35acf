"""On which databases and backends a test runs that names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["cells", "everywhere", "if_chosen", "on", "on_servers"]

if_chosen = pytest.mark.if_chosen
_BACKEND = {"mariadb": "asyncio", "mysql": "trio"}
"""The one of the project's own run."""


def cells(*databases: str, once: Sequence[str] = ("mariadb",)) -> list[Any]:
    """Values of ``inbox_db`` and ``inbox_backend``.

    Args:
        databases: Where the test runs if ``--inbox-db`` names it.
        once: Of MariaDB and MySQL those of the project's own run too, on one backend each.
    """
    found = []
    for database in databases:
        for backend in ("asyncio", "trio"):
            is_own = database in once and _BACKEND[database] == backend
            marks = () if is_own or database not in _BACKEND else (if_chosen,)
            name = f"{database}-{backend}"
            found.append(pytest.param(database, backend, id=name, marks=marks))
    return found


def on(*databases: str, once: Sequence[str] = ("mariadb",)) -> pytest.MarkDecorator:
    """Run a test in these `cells`."""
    return pytest.mark.parametrize(("inbox_db", "inbox_backend"), cells(*databases, once=once))


everywhere = on("sqlite", "postgres", "mariadb", "mysql")
"""Run a test on MariaDB in the project's own run, too; on MySQL where that is chosen."""
on_servers = on("postgres", "mariadb", "mysql", once=())
"""Run a test of what only a server can do."""
