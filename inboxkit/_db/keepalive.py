"""TCP keepalives: a session may hold a row for hours, and a host that fell silent must be noticed."""

from __future__ import annotations

import socket
from typing import Any, Final

__all__ = ["COUNT", "IDLE", "INTERVAL", "keep_alive"]

IDLE: Final = 30
"""Seconds of silence before the first probe."""
INTERVAL: Final = 10
"""Seconds between probes."""
COUNT: Final = 3
"""Probes without an answer after which the session has ended."""

_OPTIONS: Final = {"TCP_KEEPIDLE": IDLE, "TCP_KEEPINTVL": INTERVAL, "TCP_KEEPCNT": COUNT}


def keep_alive(line: Any) -> None:
    """Turn keepalives on for a TCP socket; as far as the system knows the times, with ours.

    Args:
        line: A socket, or what asyncio shows of one; one of another family is left alone.
    """
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)
