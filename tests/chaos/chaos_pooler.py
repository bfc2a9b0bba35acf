"""A pgbouncer of a test's own, which it pauses and restarts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from inboxkit_testing.servers._supervisor import free_port

__all__ = ["Pooler", "pooling"]

_SETTINGS = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
auth_type = any
admin_users = administrator
pool_mode = {mode}
default_pool_size = 40
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
unix_socket_dir =
"""


class Pooler:
    """The process; its `url` stays over restarts."""

    def __init__(self, command: str, settings: Path, listen: int, url: str, mode: str) -> None:
        self.url = url
        self.mode = mode
        self._command = command
        self._settings = settings
        self._listen = listen
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and return when it listens."""
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        self._process = process = subprocess.Popen(
            [self._command, *user, str(self._settings)], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = ""
        while line := process.stderr.readline():
            said += line
            if "process up" in line:
                return
        raise AssertionError(f"pgbouncer did not start:\n{said}")

    def stop(self) -> None:
        """End it at once, with all sessions."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For a block it answers nobody, and keeps all connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def tell(self, command: str) -> None:
        """Say something on its console, such as ``PAUSE``."""
        url = f"postgresql://administrator@127.0.0.1:{self._listen}/pgbouncer"
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as console:
            console.execute(command.encode())


@contextmanager
def pooling(url: str, mode: str) -> Iterator[Pooler]:
    """A pooler before the server of a URL; skips the test where there is no pgbouncer."""
    command = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if command is None:
        pytest.skip("pgbouncer is not installed")
    server, listen = urlsplit(url), free_port()
    folder = Path(tempfile.mkdtemp(prefix="inboxkit-pgbouncer-"))
    folder.chmod(0o755)
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _SETTINGS.format(
            host=server.hostname,
            port=server.port,
            user=server.username,
            password=unquote(server.password or ""),
            listen=listen,
            mode=mode,
        )
    )
    pooler = Pooler(
        command, settings, listen, f"postgresql://someone@127.0.0.1:{listen}{server.path}", mode
    )
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.stop()
        shutil.rmtree(folder)
