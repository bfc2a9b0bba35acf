import sys
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from inboxkit._db.url import parse_url
from inboxkit.database import Database
from inboxkit.errors import (
    ClosedError,
    ConnectError,
    DeclarationError,
    MissingExtraError,
    StartupError,
)


@pytest.mark.parametrize(
    ("url", "dialect", "driver", "location"),
    [
        ("sqlite:///rel.db", "sqlite", None, str(Path.cwd() / "rel.db")),
        ("sqlite:////abs/x y%20.db", "sqlite", None, "/abs/x y%20.db"),
        ("sqlite:///:memory:", "sqlite", None, ":memory:"),
        ("sqlite+thread:///:memory:", "sqlite", "thread", ":memory:"),
        ("sqlite+aiosqlite:////a.db", "sqlite", "aiosqlite", "/a.db"),
        ("postgres://h/d", "postgres", None, "postgresql://h/d"),
        ("postgresql:///d?host=/run", "postgres", None, "postgresql:///d?host=/run"),
        ("postgresql+psycopg://u:p@h:1/d", "postgres", "psycopg", "postgresql://u:p@h:1/d"),
        ("postgresql+asyncpg://a:1,b:2/d", "postgres", "asyncpg", "postgresql://a:1,b:2/d"),
        ("mysql://h/d", "mysql", None, "mysql://h/d"),
        ("mariadb://h", "mysql", None, "mysql://h"),
        ("mysql+asyncmy://u:p@h:1/d", "mysql", "asyncmy", "mysql://u:p@h:1/d"),
        ("mariadb+pymysql:///d?host=/run/s", "mysql", "pymysql", "mysql:///d?host=/run/s"),
    ],
)
def test_urls(url: str, dialect: str, driver: str | None, location: str) -> None:
    parsed = parse_url(url)

    assert (parsed.dialect, parsed.driver, parsed.location) == (dialect, driver, location)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "rel.db",
        "oracle://h/d",
        "sqlite://",
        "sqlite:///",
        "sqlite://rel.db",
        "sqlite:///a.db?mode=ro",
        "sqlite+asyncpg:///a.db",
        "postgresql+://h/d",
        "postgresql://h:port/d",
        "postgresql:h/d",
        "mysql+psycopg://h/d",
        "mysql://h:port/d",
        "mysql://h/d?ssl=1",
        "mysql://h/d?ssl_mode=maybe",
        "mysql://h/d?charset=latin1",
    ],
)
def test_wrong_urls_are_refused_at_construction(url: str) -> None:
    with pytest.raises(DeclarationError, match="write sqlite:///"):
        Database(url)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(DeclarationError, match="pool_size"):
        Database("sqlite:///:memory:", pool_size=0)
    with pytest.raises(DeclarationError, match="statement_timeout"):
        Database("sqlite:///:memory:", statement_timeout=timedelta(0))


def test_no_password_is_shown() -> None:
    shown = repr(Database("postgresql://me:secret@h/d?password=secret&x=1"))

    assert "secret" not in shown
    assert "me:***@h/d?password=***&x=1" in shown
    with pytest.raises(DeclarationError) as caught:
        Database("postgresql://me:secret@h:port/d")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("sqlite+aiosqlite:///:memory:", "sqlite+thread://"),
        ("postgresql+asyncpg://h/d", "postgresql+psycopg://"),
        ("mariadb+asyncmy://h/d", "mysql+pymysql://"),
    ],
)
def test_a_driver_of_asyncio_alone_under_trio_says_what_to_name(url: str, instead: str) -> None:
    with pytest.raises(StartupError) as caught:
        anyio.run(Database(url).open, backend="trio")

    assert instead in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "scheme", "extra"),
    [
        ("asyncpg", "postgresql", "postgres"),
        ("psycopg", "postgresql", "postgres"),
        ("asyncmy", "mysql", "mysql"),
        ("pymysql", "mysql", "mysql"),
    ],
)
def test_a_missing_extra_names_the_command(
    driver: str, scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith(f"inboxkit._db.{driver}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, driver, None)

    with pytest.raises(MissingExtraError) as caught:
        anyio.run(Database(f"{scheme}+{driver}://h/d").open)

    assert f"pip install 'inboxkit[{extra}]'" in str(caught.value)


def test_use_before_open_names_the_cure(backend: str) -> None:
    async def main() -> None:
        db = Database("sqlite:///:memory:")
        assert not db.is_open
        for use in (db.execute("SELECT 1"), db.fetch("SELECT 1"), db.fetch_value("SELECT 1")):
            with pytest.raises(ClosedError, match="async with database"):
                await use
        with pytest.raises(ClosedError, match="async with database"):
            async with db.transaction():
                pass
        async with db:
            assert db.is_open
            assert db.driver_name in {"aiosqlite", "thread"}
        with pytest.raises(ClosedError):
            await db.fetch("SELECT 1")

    anyio.run(main, backend=backend)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+asyncpg://p@127.0.0.1:1/d", "cannot connect to PostgreSQL"),
        ("postgresql+psycopg://p@127.0.0.1:1/d", "cannot connect to PostgreSQL"),
        ("mysql+asyncmy://p:secret@127.0.0.1:1/d", "cannot connect to 127.0.0.1:1: .*check that"),
        ("mysql+pymysql://p:secret@127.0.0.1:1/d", "cannot connect to 127.0.0.1:1: .*check that"),
        ("mysql+asyncmy:///d?host=/missing", "cannot connect to the socket /missing: .*check that"),
        ("mysql+pymysql:///d?host=/missing", "cannot connect to the socket /missing: .*check that"),
    ],
)
def test_a_server_that_is_not_there(url: str, message: str) -> None:
    with pytest.raises(ConnectError, match=message) as caught:
        anyio.run(Database(url).open)
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_opened(tmp_path: Path, backend: str) -> None:
    (tmp_path / "text.db").write_text("This is no database. " * 100)
    for path, reason in (
        (tmp_path / "missing" / "x.db", "there is no folder '.*missing'$"),
        (tmp_path / "text.db", "not a database"),
    ):
        with pytest.raises(ConnectError, match=f"cannot open the SQLite file .*{reason}"):
            anyio.run(Database(f"sqlite:///{path}").open, backend=backend)
