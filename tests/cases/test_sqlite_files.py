"""SQLite: files that cannot be written, options of an application, databases that are no file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from cases_kit import BACKENDS, JOBS, SECOND, Job, make, on, serve

from inboxkit import Database, DeclarationError, ack, retry_after
from inboxkit.errors import InboxkitError, StartupError
from inboxkit_testing import TestApp, VirtualClock


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///file:q?mode=memory&cache=shared&uri=true",
        "sqlite:///file::memory:?cache=shared",
        "sqlite:///jobs.db?mode=ro",
    ],
)
def test_options_of_a_url_are_refused_with_a_hint(url: str) -> None:
    """A shared cache has table locks that no busy handler waits for."""
    with pytest.raises(DeclarationError, match="takes no options") as caught:
        Database(url)
    assert ":memory:" in str(caught.value)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere, so not as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's."""
    with TemporaryDirectory(prefix="inboxkit-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("what", ["folder", "file"])
def test_file_that_cannot_be_written_is_told_by_its_path(
    what: str, journal: str, backend: Any, open_folder: Path
) -> None:
    """At the start, or by the first statement; what SQLite can still read is read."""
    folder = open_folder / "of another"
    folder.mkdir()
    path = folder / "inbox.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO jobs VALUES (7)")
    connection.close()
    path.chmod(0o444 if what == "file" else 0o666)
    folder.chmod(0o555 if what == "folder" else 0o777)

    async def main() -> list[str]:
        found: list[str] = []
        try:
            async with Database(f"sqlite:///{path}") as db:
                try:
                    assert await db.fetch_value("SELECT id FROM jobs") == 7
                except InboxkitError as error:
                    found.append(str(error))
                async with db.transaction() as tx:
                    await tx.execute("INSERT INTO jobs VALUES (8)")
        except InboxkitError as error:
            found.append(str(error))
        app, _ = serve(Database(f"sqlite:///{path}"), JOBS, lambda *_: ack())
        with pytest.raises(StartupError) as caught:
            async with app.running():
                raise AssertionError("it has started")
        return [*found, str(caught.value)]

    try:
        with as_nobody():
            told = anyio.run(main, backend=backend)
    finally:
        folder.chmod(0o755)
    assert told
    for text in told:
        assert str(path) in text
        assert "write the file" in text
        assert "folder" in text


@on("sqlite")
async def test_adapters_of_the_application_have_no_part(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """No time is handed to sqlite3 as a time, nor read as one."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an adapter of the application was called")

    adapters, converters = dict(sqlite3.adapters), dict(sqlite3.converters)
    sqlite3.register_adapter(datetime, refuse)
    for name in ("TIMESTAMP", "DATETIME"):
        sqlite3.register_converter(name, refuse)
    try:
        db = inbox_database
        await make(db, due="due TIMESTAMP", lease="lease DATETIME")
        app, seen = serve(
            db,
            JOBS,
            lambda _m, delivery: retry_after(SECOND) if delivery.attempt == 1 else ack(),
        )
        async with TestApp(app) as kit:
            await kit.publish(JOBS, b"x")
            (row,) = await kit.rows(Job)
            assert row.due == frozen_clock.now() + SECOND
            await kit.advance(SECOND)
            assert [attempt for _, attempt in seen] == [1, 2]
            assert await kit.rows(Job) == []
    finally:
        sqlite3.adapters.clear()
        sqlite3.adapters.update(adapters)
        sqlite3.converters.clear()
        sqlite3.converters.update(converters)
