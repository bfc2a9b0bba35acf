"""Advisory locks of a SQLite file: kept by this process, for all who have the file open in it.

SQLite has no such locks, so a second process would hand the same rows out again. It is refused: the
process that came first has a file beside in the temporary directory locked, named by the
database's device and inode, so that a file has one name by whatever path it is opened. Never the
database file itself: closing any descriptor of that drops all locks that SQLite has on it.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inboxkit._core.key_ring import KeyRing
from inboxkit.errors import DialectError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["FileKeys", "MemoryKeys", "keys_of_file"]


class MemoryKeys:
    """Keys of a database that nobody else can open."""

    def __init__(self, ring: KeyRing | None = None) -> None:
        self.ring: Final = ring if ring is not None else KeyRing()

    def close(self) -> None:
        """Nothing is shared."""


@dataclass(slots=True)
class _File:
    """One database file in this process."""

    path: str
    descriptor: int
    """Of the locked file beside it."""
    ring: KeyRing = field(default_factory=KeyRing)
    users: int = 0


_files: dict[tuple[int, int], _File] = {}
_guard = threading.Lock()


class FileKeys:
    """One user's right to the keys of a file; made by `keys_of_file`."""

    def __init__(self, identity: tuple[int, int], file: _File) -> None:
        self.ring: Final = file.ring
        self._identity = identity
        self._file = file
        self._is_closed = False

    def close(self) -> None:
        """Give it up; the last user of this process lets other processes in."""
        with _guard:
            if self._is_closed:
                return
            self._is_closed = True
            self._file.users -= 1
            if self._file.users == 0 and _files.get(self._identity) is self._file:
                del _files[self._identity]
                # Removed before it is unlocked: who waits for no lock finds it locked, or gone.
                with suppress(FileNotFoundError):
                    Path(self._file.path).unlink()
                os.close(self._file.descriptor)


def keys_of_file(path: str) -> FileKeys:
    """The keys of a database file, one ring for all of this process, by whatever path.

    Args:
        path: The file, which exists.

    Raises:
        DialectError: Another process has them, or this system cannot tell.
    """
    found = os.stat(path)
    identity = found.st_dev, found.st_ino
    with _guard:
        file = _files.get(identity)
        if file is None:
            beside = os.path.join(
                tempfile.gettempdir(), f"inboxkit-{identity[0]:x}-{identity[1]:x}.lock"
            )
            file = _files[identity] = _File(beside, _locked(beside, path))
        file.users += 1
        return FileKeys(identity, file)


def _locked(beside: str, path: str) -> int:
    """Open the file beside and lock it, until one is had that is there still."""
    if fcntl is None:
        raise DialectError(
            "the advisory lock form on SQLite needs flock, which this system does not have; describe "
            "a locked_until column (a nullable TEXT), which asks for the lease form"
        )
    while True:
        try:
            descriptor = _opened(beside)
        except OSError as error:
            raise DialectError(
                f"the advisory lock form on SQLite cannot open {beside!r}, by which it finds other "
                f"processes: {error.strerror}; point TMPDIR to a directory that all of them can write"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(beside, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise DialectError(
                f"another process has the SQLite file {path!r} open for the advisory lock form, whose "
                "keys on SQLite are kept by one process: both would hand the same rows out. Serve the "
                "file by one process, or describe a locked_until column, which asks for the lease form"
            ) from None
        os.close(descriptor)


def _opened(path: str) -> int:
    # Reading is enough for a lock, and O_CREAT on another user's file is refused in /tmp.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)


def _is_there(path: str, descriptor: int) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _forget_after_fork() -> None:
    """A child has nothing of its parent's; an inherited descriptor would keep the lock beyond it."""
    global _guard  # noqa: PLW0603 - another thread of the parent may have had it
    _guard = threading.Lock()
    for file in _files.values():
        os.close(file.descriptor)
    _files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
