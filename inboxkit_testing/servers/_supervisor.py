"""A program of its own that makes, runs and removes one throw-away server.

It runs as ``python -I -S _supervisor.py FOLDER``, in its own session, and imports nothing of
inboxkit. Whoever uses the server holds a shared lock on ``FOLDER/users``; the kernel lets go of it
however the process ends, SIGKILL included. This program waits for the exclusive lock: when it has
it, nobody is left, so it ends the server and removes the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_PORT_TRIES = 8
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0

_SETTINGS = {
    "autovacuum": "off",
    "dynamic_shared_memory_type": "mmap",  # in the folder, so that nothing is left elsewhere
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
    "max_connections": "200",
    "max_wal_senders": "0",
    "max_wal_size": "128MB",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "wal_level": "minimal",
}
_DURABLE_SETTINGS = {
    "dynamic_shared_memory_type": "mmap",
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
    "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
    "synchronous_commit": "on",
    "timezone": "UTC",
}
"""All else as PostgreSQL has it by default."""


_MYSQL_SETTINGS = {
    "bind-address": "127.0.0.1",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "32M",
    "innodb-doublewrite": "0",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "fsync",
    "innodb-use-native-aio": "0",
    "max-connections": "300",
    "skip-log-bin": "",
    "skip-name-resolve": "",
}
_MYSQL_DURABLE = {
    "bind-address": "127.0.0.1",
    "character-set-server": "utf8mb4",
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-use-native-aio": "0",
    "max-connections": "300",
    "skip-log-bin": "",
    "skip-name-resolve": "",
}
_MYSQL_ALONE = {"innodb-redo-log-capacity": "16M", "mysqlx": "OFF", "secure-file-priv": "NULL"}
_MARIADB_ALONE = {"innodb-log-file-size": "16M"}
_MYSQL_ALONE_DURABLE = {"mysqlx": "OFF", "secure-file-priv": "NULL"}


class Supervisor:
    """One server: its folder, its settings and its process."""

    ending: signal.Signals
    """What ends the server at once."""

    def __init__(self, folder: pathlib.Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.settings = settings
        self.password: str = settings["password"]
        self.user: int | None = settings["user"]
        self.group: int | None = settings["group"]
        self.log = (folder / "log").open("ab")
        self.stopping = threading.Event()

    def run(self) -> None:
        """Serve until nobody uses the server, it ends by itself, or SIGTERM comes."""
        self.make_data()
        server, port = self.start()
        signal.signal(signal.SIGTERM, lambda *_: self.stop(server))
        answer = {"port": port, "server": server.pid, "supervisor": os.getpid()}
        temporary = self.folder / "server.json.new"
        temporary.write_text(json.dumps(answer))
        temporary.rename(self.folder / "server.json")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        threading.Thread(target=self.wait_for_users, args=(server,), daemon=True).start()
        server.wait()
        if self.stopping.is_set():
            shutil.rmtree((self.folder / "data").resolve(), ignore_errors=True)
            shutil.rmtree(self.folder, ignore_errors=True)
        # Else it died: its folder with the log stays for the reader, until the next start sweeps it.

    def wait_for_users(self, server: subprocess.Popen[bytes]) -> None:
        """End the server once no process holds the shared lock."""
        with (self.folder / "users").open("rb") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            self.stop(server)

    def stop(self, server: subprocess.Popen[bytes]) -> None:
        """End the server at once; nobody wants its data."""
        self.stopping.set()
        server.send_signal(self.ending)
        patience = threading.Timer(_STOP_SECONDS, server.kill)
        patience.daemon = True
        patience.start()

    def make_data(self) -> None:
        """Make the server's data, with a superuser whom only the password lets in."""
        raise NotImplementedError

    def command(self, port: int) -> list[str]:
        """How the server is started."""
        raise NotImplementedError

    def says_ready(self, server: subprocess.Popen[bytes]) -> bool:
        """Whether it takes connections now; OSError or IndexError: not yet."""
        raise NotImplementedError

    def start(self) -> tuple[subprocess.Popen[bytes], int]:
        """Start the server on a free port; another process may take the port first, so try again."""
        for _ in range(_PORT_TRIES):
            port = free_port()
            server = self.popen(self.command(port), preexec_fn=self.die_with_parent)
            if self.is_ready(server):
                return server, port
        raise RuntimeError("the server did not start")

    def is_ready(self, server: subprocess.Popen[bytes]) -> bool:
        """Wait until it is ready, or has ended."""
        deadline = time.monotonic() + _START_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, IndexError):
                if self.says_ready(server):
                    return True
            time.sleep(0.005)
        server.kill()
        server.wait()
        return False

    def make_folders(self) -> None:
        """Folders that only the server's user may enter."""
        for name in ("data", "socket", "temporary"):
            path = (self.folder / name).resolve()  # the data may be in memory
            path.mkdir(mode=0o700)
            if self.user is not None and self.group is not None:
                os.chown(path, self.user, self.group)

    def secret_file(self, name: str, text: str) -> pathlib.Path:
        """A file that only the server's user can reach."""
        secret = self.folder / "socket" / name
        secret.write_text(text)
        secret.chmod(0o644)
        return secret

    def popen(
        self, command: list[str], preexec_fn: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one of the server's programs, as another user where we are root."""
        return subprocess.Popen(  # noqa: S603 - the server's programs
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env={"LC_ALL": "C", "PATH": os.defpath, "TZ": "UTC"},
            cwd="/",
            preexec_fn=preexec_fn,  # noqa: PLW1509 - only one thread runs yet
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
        )

    def die_with_parent(self) -> None:
        """Have the kernel end the server if this program is killed (Linux; elsewhere the next start sweeps)."""
        if sys.platform == "linux":
            pr_set_pdeathsig = 1
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, self.ending)


class Postgres(Supervisor):
    """PostgreSQL."""

    ending = signal.SIGQUIT

    @property
    def programs(self) -> pathlib.Path:
        """The folder of its programs."""
        return pathlib.Path(self.settings["installation"]) / "bin"

    def make_data(self) -> None:
        """`initdb` with a superuser whom only the password lets in: other users share 127.0.0.1."""
        self.make_folders()
        secret = self.secret_file("password", self.password)
        command = [str(self.programs / "initdb"), "--pgdata", str(self.folder / "data")]
        command += ["--username=inboxkit", f"--pwfile={secret}", "--auth=password", "--no-sync"]
        command += [
            "--encoding=UTF8",
            "--locale=C",
            "--no-instructions",
            "--set=scram_iterations=1",
        ]
        self.popen(command).wait(_START_SECONDS)
        secret.unlink()
        if not (self.folder / "data" / "PG_VERSION").exists():
            raise RuntimeError("initdb failed")

    def command(self, port: int) -> list[str]:
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data")]
        settings = {**self.common(), "port": str(port)}
        settings["unix_socket_directories"] = self.socket_folder(port)
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def common(self) -> dict[str, str]:
        """Settings that hang on no folder."""
        if not self.settings["durable"]:
            return _SETTINGS
        counting = self.programs.parent / "lib" / "pg_stat_statements.so"
        left_out = () if counting.exists() else ("shared_preload_libraries",)
        return {key: value for key, value in _DURABLE_SETTINGS.items() if key not in left_out}

    def socket_folder(self, port: int) -> str:
        """The folder of the Unix socket, or nothing where its path would be too long."""
        longest = 103  # of sun_path on macOS; 107 on Linux
        folder = self.folder / "socket"
        return str(folder) if len(f"{folder}/.s.PGSQL.{port}") <= longest else ""

    def says_ready(self, server: subprocess.Popen[bytes]) -> bool:
        """The postmaster's own word; a port that answers might be somebody else's."""
        lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        return int(lines[0]) == server.pid and lines[7].strip() == "ready"


class Mysql(Supervisor):
    """MariaDB or MySQL."""

    ending = signal.SIGKILL  # any other is an orderly stop, of some seconds

    def make_data(self) -> None:
        """Make the data, and write down the accounts that the start makes."""
        self.make_folders()
        options = [f"--{name}={value}" if value else f"--{name}" for name, value in self.options()]
        data = f"--datadir={self.folder / 'data'}"
        self.popen([*self.settings["initialize"], *options, data]).wait(_START_SECONDS)
        if not (self.folder / "data" / "mysql").exists():
            raise RuntimeError("the server's data could not be made")
        secret = f"IDENTIFIED BY '{self.password}'"
        lines = [self.settings["closing"].format(secret=secret)]
        for host in ("localhost", "127.0.0.1"):
            lines.append(f"CREATE USER inboxkit@'{host}' {secret}")
            lines.append(f"GRANT ALL ON *.* TO inboxkit@'{host}' WITH GRANT OPTION")
        self.secret_file("accounts.sql", ";\n".join([*lines, ""]))

    def command(self, port: int) -> list[str]:
        settings = {**dict(self.options()), "port": str(port), "datadir": self.folder / "data"}
        settings["socket"] = self.socket
        settings["pid-file"] = self.folder / "data" / "mysqld.pid"
        settings["init-file"] = self.folder / "socket" / "accounts.sql"
        options = [
            f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()
        ]
        return [*self.settings["server"], *options]

    def options(self) -> list[tuple[str, str]]:
        """Settings of the data's making and of the server."""
        is_mysql = self.settings["kind"] == "mysql"
        common, alone = _MYSQL_SETTINGS, _MYSQL_ALONE if is_mysql else _MARIADB_ALONE
        if self.settings["durable"]:
            common, alone = _MYSQL_DURABLE, _MYSQL_ALONE_DURABLE if is_mysql else {}
        # Its own: a MariaDB that starts removes what it takes for its temporary files, of any server.
        temporary = ("tmpdir", str(self.folder / "temporary"))
        return [*common.items(), *alone.items(), temporary]

    @property
    def socket(self) -> pathlib.Path:
        """The Unix socket; a path too long for one is refused by the server."""
        return self.folder / "socket" / "s"

    def says_ready(self, server: subprocess.Popen[bytes]) -> bool:  # noqa: ARG002
        """Its greeting, at the socket that nobody else can have."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1.0)
            line.connect(str(self.socket))
            return bool(line.recv(1))


def free_port() -> int:
    """A TCP port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(folder: pathlib.Path) -> None:
    """Hold the lock that says "this server has its supervisor", and supervise."""
    with (folder / "supervisor").open("wb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            settings = json.loads((folder / "settings.json").read_text())
            kind = Postgres if settings["kind"] == "postgres" else Mysql
            kind(folder, settings).run()
        except Exception as error:  # noqa: BLE001 - told to whoever started us
            sys.stdout.write(f"failed: {error!r}\n")


if __name__ == "__main__":
    if os.fork():  # so that whoever started us has no child to wait for, however long it lives
        os._exit(0)
    main(pathlib.Path(sys.argv[1]))
