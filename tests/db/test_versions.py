"""Servers and libraries that are too old are told by version and cure, when the database is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest

from inboxkit import Broker, Database, ServerTooOldError, Service
from inboxkit._db import versions


async def start(url: str) -> None:
    await Service("service", Broker(url)).run()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_server_that_is_too_old_stops_the_start(
    driver: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_POSTGRES", 99)
    with pytest.raises(
        ServerTooOldError, match=r"is PostgreSQL \d+, and inboxkit needs 99 or newer"
    ):
        anyio.run(start, f"postgresql+{driver}://{postgres_database}")


@pytest.mark.parametrize("driver", ["aiosqlite", "thread"])
def test_a_library_that_is_too_old_stops_the_start(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ServerTooOldError, match=r"SQLite 3\.34\.1, and inboxkit needs 3\.35\.0"):
        anyio.run(start, f"sqlite+{driver}:///{tmp_path / 'x.db'}")
    assert not (tmp_path / "x.db").exists()


def test_the_oldest_that_are_served() -> None:
    versions.check_postgres(12)
    versions.check_sqlite((3, 35, 0))
    versions.check_mysql("MariaDB", (10, 6, 0))
    versions.check_mysql("MySQL", (8, 0, 1))
    with pytest.raises(ServerTooOldError):
        versions.check_postgres(11)
    with pytest.raises(ServerTooOldError):
        versions.check_mysql("MariaDB", (10, 5, 29))
    with pytest.raises(ServerTooOldError):
        versions.check_mysql("MySQL", (5, 7, 44))


def test_databases_of_today_are_served(with_database: object) -> None:
    async def test(db: Database) -> object:
        return await db.fetch_value("SELECT 1")

    assert callable(with_database)
    assert with_database(test) == 1
