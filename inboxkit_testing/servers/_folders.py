"""Folders of throw-away servers: how processes of one run find theirs, and leftovers are swept.

Each server has a folder ``KEY-RANDOM`` below one common folder. Three locks (`flock`, so that the
kernel frees them with their process) say all there is to know: ``users`` is shared by the processes
that use the server, ``supervisor`` is held by the program that runs it, and ``lock`` of the common
folder is held for the time of a look, a start or a sweep.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from inboxkit_testing.servers._errors import ServerUnavailableError

__all__ = [
    "common_folder",
    "join",
    "locked",
    "matching",
    "memory_folder",
    "remove",
    "sweep",
    "users_of",
]

_MEMORY = Path("/dev/shm")  # noqa: S108 - ours below it
_ROOM = 1 << 30
"""Bytes that must be free in memory; a server with some databases takes about a tenth."""


def common_folder() -> Path:
    """Where the servers of this user live; made when missing.

    Root's servers run as another user, who must be able to reach the folder, so a private
    temporary directory is passed over, and so is one that forbids programs.

    Raises:
        ServerUnavailableError: No temporary directory will do.
    """
    for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - made private below
        parent = Path(candidate).resolve()
        if parent.is_dir() and _is_usable(parent):
            folder = _own_folder(parent)
            if folder is not None:
                return folder
    raise ServerUnavailableError(
        f"no server for tests: {tempfile.gettempdir()!r} cannot hold one (it must be ours, allow "
        "programs, and for root be open to other users); set TMPDIR"
    )


def memory_folder() -> Path | None:
    """Where data lives in memory: a disk that others write to makes a database in 300 ms, not in 10."""
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK):
        room = os.statvfs(_MEMORY)
        if room.f_bavail * room.f_frsize > _ROOM:
            return _own_folder(_MEMORY)
    return None


def _own_folder(parent: Path) -> Path | None:
    """Our folder in a place where everybody may write; None: somebody else has its name."""
    folder = parent / f"inboxkit-servers-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o755)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return None
    folder.chmod(0o755)
    return folder


def _is_usable(parent: Path) -> bool:
    if not os.access(parent, os.W_OK | os.X_OK):
        return False
    if os.geteuid() != 0:
        return True
    open_to_all = all(path.stat().st_mode & stat.S_IXOTH for path in (parent, *parent.parents))
    return open_to_all and not os.statvfs(parent).f_flag & getattr(os, "ST_NOEXEC", 0)


@contextlib.contextmanager
def locked(common: Path) -> Iterator[None]:
    """Alone in the common folder."""
    with (common / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def matching(common: Path, key: str) -> list[Path]:
    """Folders of the run `key`."""
    return sorted(common.glob(f"{key}-*"))


def users_of(folder: Path) -> IO[bytes] | None:
    """Count this process among the users, until the returned file is closed; None: too late."""
    try:
        users = (folder / "users").open("rb")
    except FileNotFoundError:
        return None
    if _try_lock(users, fcntl.LOCK_SH):
        return users
    users.close()
    return None


def join(folder: Path) -> IO[bytes] | None:
    """As `users_of`, for a server that runs; None: it ended, or never came up."""
    users = users_of(folder)
    if (
        users is not None
        and (folder / "server.json").exists()
        and not _is_free(folder / "supervisor")
    ):
        return users
    if users is not None:
        users.close()
    return None


def sweep(common: Path) -> None:
    """Remove what dead runs left. Call it `locked`; servers in use, or ending by themselves, stay."""
    for folder in common.iterdir():
        if folder.is_dir() and _is_free(folder / "users") and _is_free(folder / "supervisor"):
            _end_orphan(folder / "data")
            remove(folder)
    memory = memory_folder()
    for data in memory.iterdir() if memory is not None else ():
        if not (common / data.name).exists():
            shutil.rmtree(data, ignore_errors=True)


def remove(folder: Path) -> None:
    """Remove a server's folder, and its data where they are in memory."""
    shutil.rmtree((folder / "data").resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _is_free(path: Path) -> bool:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return True
    with file:
        return _try_lock(file, fcntl.LOCK_EX)


def _try_lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_orphan(data: Path) -> None:
    """End a server whose supervisor was killed, if the process is still the one that it was."""
    for name, ending in (("postmaster.pid", signal.SIGQUIT), ("mysqld.pid", signal.SIGKILL)):
        try:
            pid = int((data / name).read_text().splitlines()[0])
        except (OSError, IndexError, ValueError):
            continue
        if str(data) in _command_of(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, ending)


def _command_of(pid: int) -> str:
    process = Path("/proc") / str(pid) / "cmdline"
    try:
        if Path("/proc/self").exists():
            return process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        answer = subprocess.run(  # noqa: S603 - a number of ours
            ["/bin/ps", "-o", "command=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return answer.stdout
