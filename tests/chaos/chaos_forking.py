"""A program that forks workers off, so that a worker's life is spent on work and not on imports.

It reads one JSON object a line and answers with one: ``{"start": [arguments], "folder": path,
"variables": {…}}`` with a worker's process id, and ``{"ended": true}`` with the statuses of the workers that have
ended since the last time. A worker is ``inboxkit ARGUMENTS``, with its output in ``worker-PID.log`` of the folder,
where it runs; it dies with this program, which ends with its standard input.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

_BEFOREHAND = (
    *("inboxkit._cli.commands", "inboxkit._cli.run", "trio", "anyio._backends._trio"),
    *("anyio._backends._asyncio", "inboxkit._db.drivers"),
    *("inboxkit._db.asyncpg", "inboxkit._db.psycopg", "inboxkit._db.aiosqlite"),
    *("inboxkit._db.asyncmy", "inboxkit._db.pymysql", "inboxkit._db.thread"),
)

_CLONE_NEWNET = 0x40000000


def main() -> None:
    """Serve until the end of the input."""
    for name in _BEFOREHAND:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        answer: Any = _ended() if "ended" in asked else _start(**asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _ended() -> dict[int, int]:
    """Exit statuses by process id; minus the signal's number for one that was killed."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found[pid] = os.waitstatus_to_exitcode(status)


def _start(start: list[str], folder: str, variables: dict[str, str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _die_with_parent()
        os.chdir(folder)
        os.environ.update(variables)
        if name := variables.get("CHAOS_NETNS"):
            _enter(name)
        output = os.open(f"worker-{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        sys.argv = ["inboxkit", *start]
        importlib.import_module("inboxkit._cli").main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - a child must not go on as its parent
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _enter(namespace: str) -> None:
    """Live in this network namespace from now on."""
    place = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(place, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(place)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    main()
