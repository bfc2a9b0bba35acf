"""Advisory locks behind a real pgbouncer: sessions may be pooled, transactions and statements not."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
import pytest

from inboxkit._db.poolers import refuse_transaction_pooling
from inboxkit.database import Database
from inboxkit.errors import DialectError
from inboxkit_testing.servers import required_servers

SETTINGS = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
auth_type = any
pool_mode = {mode}
default_pool_size = 4
unix_socket_dir =
"""


@pytest.fixture
def pooler(shared_postgres_url: str) -> Iterator[Callable[[str], str]]:
    """Start pgbouncer in a mode; answers the database's place behind it."""
    command = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if command is None:
        if "pgbouncer" in required_servers():
            pytest.fail("INBOXKIT_REQUIRE lists pgbouncer, which is not installed", pytrace=False)
        pytest.skip("pgbouncer is not installed")
    server = urlsplit(shared_postgres_url)
    started: list[subprocess.Popen[str]] = []
    folder = Path(tempfile.mkdtemp(prefix="inboxkit-pgbouncer-"))
    folder.chmod(0o755)

    def start(mode: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            listen = free.getsockname()[1]
        settings = folder / f"{mode}.ini"
        settings.write_text(
            SETTINGS.format(
                host=server.hostname,
                port=server.port,
                user=server.username,
                password=f" password={unquote(server.password)}" if server.password else "",
                listen=listen,
                mode=mode,
            )
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [command, *user, str(settings)], stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "process up" in line:
                return f"someone@127.0.0.1:{listen}{server.path}"
        pytest.fail(f"pgbouncer did not start:\n{said}")

    yield start
    for process in started:
        process.kill()
        process.communicate()
    shutil.rmtree(folder)


DRIVERS = [("asyncpg", "asyncio"), ("psycopg", "trio")]


def check(url: str, backend: str, *, pool_size: int = 3) -> int:
    """Run the check; answers how many sessions it left in use."""

    async def main() -> int:
        async with Database(url, pool_size=pool_size) as db:
            await refuse_transaction_pooling(db)
            assert db._pool is not None
            return db._pool.in_use

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_poolers_of_sessions_alone_are_served(
    pooler: Callable[[str], str], mode: str, driver: str, backend: str
) -> None:
    url = f"postgresql+{driver}://{pooler(mode)}"
    if mode == "session":
        assert check(url, backend) == 0
        with pytest.raises(DialectError, match="pool_size=1"):
            check(url, backend, pool_size=1)
        return
    with pytest.raises(DialectError, match=r"pool_mode = transaction or statement.*locked_until"):
        check(url, backend)


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
def test_server_itself_is_served_on_one_connection(
    postgres_database: str, driver: str, backend: str
) -> None:
    assert check(f"postgresql+{driver}://{postgres_database}", backend, pool_size=1) == 0
