"""The one thing that goes wrong here: there is no server."""

from __future__ import annotations

__all__ = ["ServerUnavailableError"]


class ServerUnavailableError(RuntimeError):
    """No database server for tests can be had; the message says why and how to mend it."""
