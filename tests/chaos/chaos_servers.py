"""Servers of a test's own, which it stops, crashes, starts again and fails over.

Unlike the throw-away server that all tests share, they keep what was committed when they are killed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos_sql import Outside

from inboxkit_testing.servers import _folders, _mysql, _postgres, _starting, _supervisor

__all__ = ["OwnServer", "Pair", "own_folder", "own_mysql", "own_pair", "own_server"]

_ENDINGS = {
    "postgres": {"fast": signal.SIGINT, "crash": signal.SIGQUIT},
    "mariadb": {"fast": signal.SIGTERM, "crash": signal.SIGKILL},
    "mysql": {"fast": signal.SIGTERM, "crash": signal.SIGKILL},
}


class _Postgres(_supervisor.Postgres):
    """Commits survive a crash of the server; not one of the machine, which costs an fsync."""

    more: tuple[str, ...] = ()

    def command(self, port: int) -> list[str]:
        settings = ("full_page_writes=on", "wal_level=replica", "max_wal_senders=10", *self.more)
        return super().command(port) + [part for name in settings for part in ("-c", name)]


class _Mysql(_supervisor.Mysql):
    """So too."""

    has_accounts = False

    def options(self) -> list[tuple[str, str]]:
        safe = {"innodb-doublewrite": "1", "innodb-flush-log-at-trx-commit": "2"}
        return [(name, safe.get(name, value)) for name, value in super().options()]

    def command(self, port: int) -> list[str]:
        made = super().command(port)
        if self.has_accounts:  # they are made once
            made = [option for option in made if not option.startswith("--init-file=")]
        return made


class OwnServer:
    """A server that a test starts and ends as it likes, always on one port.

    Attributes:
        kind: ``"postgres"``, ``"mariadb"`` or ``"mysql"``.
        url: Of its one database.
    """

    def __init__(self, kind: str, supervisor: _supervisor.Supervisor) -> None:
        self.kind = kind
        self.supervisor = supervisor
        self.port = _supervisor.free_port()
        self._process: subprocess.Popen[bytes] | None = None
        name = "postgres" if kind == "postgres" else "chaos"
        scheme = "postgresql" if kind == "postgres" else kind
        self.account = f"inboxkit:{supervisor.password}"
        self.url = f"{scheme}://{self.account}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        command = self.supervisor.command(self.port)
        dying = shutil.which("setpriv")
        if dying is not None:  # with this process
            name = "QUIT" if self.kind == "postgres" else "KILL"
            command = [dying, "--pdeathsig", name, "--", *command]
        self._process = self.supervisor.popen(command)
        assert self.supervisor.is_ready(self._process), self.log()

    def stop(self, how: str) -> None:
        """End it: ``"fast"``, in order, with all sessions cut; or ``"crash"``, at once."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(_ENDINGS[self.kind][how])
        process.wait(60)

    def restart(self, how: str, *, away: float = 0.0) -> float:
        """Stop it, wait `away` seconds, start it; return when it was ready, in seconds since 1970."""
        self.stop(how)
        time.sleep(away)
        self.start()
        return time.time()

    def log(self) -> str:
        """The last of what it logged."""
        return (self.supervisor.folder / "log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """End it for good."""
        if self._process is not None:
            self.stop("crash")
        self.supervisor.log.close()


@contextmanager
def own_folder(kind: str) -> Iterator[Path]:
    """A folder as throw-away servers have one, which a later run removes if this one is killed."""
    common, memory = _folders.common_folder(), _folders.memory_folder()
    with _folders.locked(common):
        _folders.sweep(common)
        folder = common / f"chaos{kind}-{os.getpid()}x{secrets.token_hex(3)}"
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
        if memory is not None:
            (folder / "data").symlink_to(memory / folder.name)
        (folder / "users").touch()
        users = _folders.users_of(folder)
    assert users is not None
    try:
        with users:
            yield folder
    finally:
        _folders.remove(folder)


@contextmanager
def own_server(kind: str, *, settings: tuple[str, ...] = ()) -> Iterator[OwnServer]:
    """A server with an empty database.

    Args:
        kind: ``"postgres"``, ``"mariadb"`` or ``"mysql"``.
        settings: More of Postgres's, as ``"name=value"``.

    Raises:
        ServerUnavailableError: Its programs are not here.
    """
    with own_folder(kind) as folder:
        server = _made(kind, folder, settings)
        try:
            server.supervisor.make_data()
            server.start()
            if isinstance(server.supervisor, _Mysql):
                server.supervisor.has_accounts = True
                with Outside(server.url.removesuffix("chaos")) as outside:
                    outside.run("CREATE DATABASE chaos CHARACTER SET utf8mb4")
            yield server
        finally:
            server.close()


def _made(
    kind: str, folder: Path, more: tuple[str, ...] = (), *, password: str | None = None
) -> OwnServer:
    if kind != "postgres":
        return own_mysql(kind, folder, _Mysql)
    settings = _settings(kind, password)
    postgres = _Postgres(folder, {**_postgres._settings(folder, settings["user"]), **settings})
    postgres.more = more
    return OwnServer(kind, postgres)


def own_mysql(
    kind: str, folder: Path, of: type[_supervisor.Mysql], *, password: str | None = None
) -> OwnServer:
    """A MariaDB or MySQL that has neither data yet nor a process.

    Args:
        kind: ``"mariadb"`` or ``"mysql"``.
        folder: Where it lives.
        of: Its settings and commands.
        password: Of the account ``inboxkit``; None: a new one.

    Raises:
        ServerUnavailableError: Its programs are not here.
    """
    programs = _mysql._mariadb() if kind == "mariadb" else _mysql._mysql()
    closing = _mysql._ABOUT["mariadb" if kind == "mariadb" else "mysql"].closing
    settings = {**programs, **_settings(kind, password), "closing": closing}
    return OwnServer(kind, of(folder, settings))


def _settings(kind: str, password: str | None) -> dict[str, Any]:
    user, group = _starting._other_user()
    secret = password or secrets.token_hex(12)
    return {"user": user, "group": group, "kind": kind, "durable": False, "password": secret}


class Pair:
    """A Postgres and its streaming replica, which has each commit before it is answered.

    Attributes:
        old: The primary.
        new: The replica.
        both: The URL of whichever of the two can be written to.
    """

    def __init__(self, old: OwnServer, new: OwnServer) -> None:
        self.old = old
        self.new = new
        self.primary = old
        places = f"127.0.0.1:{old.port},127.0.0.1:{new.port}"
        self.both = f"postgresql://{old.account}@{places}/postgres?target_session_attrs=read-write"

    def make_read_only(self) -> None:
        """As before a switch-over: no transaction writes any more on the primary, when this returns."""
        with Outside(self.old.url) as outside:
            outside.run("ALTER SYSTEM SET default_transaction_read_only = on")
            outside.run("SELECT pg_reload_conf()")
            writing = (
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND (backend_xid IS NOT NULL OR state = 'idle in transaction')"
            )
            for _ in range(1000):
                if not outside.value(writing):
                    return
                time.sleep(0.01)
        raise AssertionError("transactions go on")

    def promote(self) -> float:
        """Make the replica the primary; return when it was, in seconds since 1970."""
        with Outside(self.new.url) as outside:
            assert outside.value("SELECT pg_promote()")
        self.primary = self.new
        return time.time()


@contextmanager
def own_pair() -> Iterator[Pair]:
    """A primary and its replica."""
    with own_folder("postgres") as folder, own_folder("replica") as copy:
        old = _made("postgres", folder)
        new = None
        try:
            old.supervisor.make_data()
            new = _replica(old, copy)
            old.start()
            new.start()
            with Outside(old.url) as outside:
                outside.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
                outside.run("SELECT pg_reload_conf()")
                for _ in range(1000):
                    if outside.value(
                        "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                    ):
                        break
                    time.sleep(0.01)
                else:
                    raise AssertionError(new.log())
            yield Pair(old, new)
        finally:
            old.close()
            if new is not None:
                new.close()


def _replica(old: OwnServer, folder: Path) -> OwnServer:
    """A copy of the data of a primary that has not been started yet."""
    about = f"host=127.0.0.1 port={old.port} user=inboxkit password={old.supervisor.password}"
    made = _made(
        "postgres", folder, (f"primary_conninfo={about}",), password=old.supervisor.password
    )
    made.supervisor.make_folders()
    source, target = ((one.supervisor.folder / "data").resolve() for one in (old, made))
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)
    (target / "standby.signal").touch()
    return made
