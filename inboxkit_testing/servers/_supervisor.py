"""A program of its own that makes, runs and removes one throw-away Postgres.

It runs as ``python -I -S _supervisor.py FOLDER``, in its own session, and imports nothing of
inboxkit. Whoever uses the server holds a shared lock on ``FOLDER/users``; the kernel lets go of it
however the process ends, SIGKILL included. This program waits for the exclusive lock: when it has
it, nobody is left, so it ends Postgres and removes the folder.
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


class Supervisor:
    """One server: its folder, its settings and its process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        settings = json.loads((folder / "settings.json").read_text())
        self.programs = pathlib.Path(settings["installation"]) / "bin"
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
        answer = {"port": port, "postgres": server.pid, "supervisor": os.getpid()}
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
        server.send_signal(signal.SIGQUIT)
        patience = threading.Timer(_STOP_SECONDS, server.kill)
        patience.daemon = True
        patience.start()

    def make_data(self) -> None:
        """`initdb` with a superuser whom only the password lets in: other users share 127.0.0.1."""
        for name in ("data", "socket"):
            path = (self.folder / name).resolve()  # the data may be in memory
            path.mkdir(mode=0o700)
            if self.user is not None and self.group is not None:
                os.chown(path, self.user, self.group)
        secret = self.folder / "socket" / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # in a folder that only the server's user may enter
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

    def start(self) -> tuple[subprocess.Popen[bytes], int]:
        """Start Postgres on a free port; another process may take the port first, so try again."""
        for _ in range(_PORT_TRIES):
            port = free_port()
            command = [str(self.programs / "postgres"), "-D", str(self.folder / "data")]
            settings = {**_SETTINGS, "port": str(port)}
            settings["unix_socket_directories"] = self.socket_folder(port)
            for name, value in settings.items():
                command += ["-c", f"{name}={value}"]
            server = self.popen(command, preexec_fn=die_with_parent)
            if self.is_ready(server):
                return server, port
        raise RuntimeError("postgres did not start")

    def socket_folder(self, port: int) -> str:
        """The folder of the Unix socket, or nothing where its path would be too long."""
        longest = 103  # of sun_path on macOS; 107 on Linux
        folder = self.folder / "socket"
        return str(folder) if len(f"{folder}/.s.PGSQL.{port}") <= longest else ""

    def is_ready(self, server: subprocess.Popen[bytes]) -> bool:
        """Wait for the postmaster's own word; a port that answers might be somebody else's."""
        state = self.folder / "data" / "postmaster.pid"
        deadline = time.monotonic() + _START_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, IndexError):
                lines = state.read_text().splitlines()
                if int(lines[0]) == server.pid and lines[7].strip() == "ready":
                    return True
            time.sleep(0.005)
        server.kill()
        server.wait()
        return False

    def popen(
        self, command: list[str], preexec_fn: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program of Postgres, as another user where we are root."""
        return subprocess.Popen(  # noqa: S603 - programs of the wheel
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


def free_port() -> int:
    """A TCP port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Have the kernel end Postgres if this program is killed (Linux; elsewhere the next start sweeps)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGQUIT)


def main(folder: pathlib.Path) -> None:
    """Hold the lock that says "this server has its supervisor", and supervise."""
    with (folder / "supervisor").open("wb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            Supervisor(folder).run()
        except Exception as error:  # noqa: BLE001 - told to whoever started us
            sys.stdout.write(f"failed: {error!r}\n")


if __name__ == "__main__":
    if os.fork():  # so that whoever started us has no child to wait for, however long it lives
        os._exit(0)
    main(pathlib.Path(sys.argv[1]))
