"""The keys of advisory locks that a process keeps by itself."""

from __future__ import annotations

import threading
from types import TracebackType

from inboxkit.errors import ClosedError

__all__ = ["Grip", "KeyRing"]


class KeyRing:
    """The keys of one database that are in work in this process; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, None] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are in work now."""
        with self._lock:
            return tuple(self._keys)

    def take(self, key: str) -> bool:
        """Try for a key; whether it was got."""
        with self._lock:
            if key in self._keys:
                return False
            self._keys[key] = None
            return True

    def drop(self, key: str) -> None:
        """Let a key go."""
        with self._lock:
            self._keys.pop(key, None)


class Grip:
    """The keys that one claim has come to hold; let go again where its block raises."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._keys: list[str] = []
        self._is_over = False

    def take(self, key: str) -> bool:
        """Try for a key.

        Raises:
            ClosedError: The claim was given up meanwhile; its statements run in a thread, which may
                be late to hear of it.
        """
        with self._lock:
            if self._is_over:
                raise ClosedError("the claim was given up")
            if not self._ring.take(key):
                return False
            self._keys.append(key)
            return True

    def __enter__(self) -> Grip:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_over = True
            if error is not None:
                for key in self._keys:
                    self._ring.drop(key)
