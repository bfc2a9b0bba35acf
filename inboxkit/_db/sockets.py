"""Looks at a library's sockets, and ends them, by their descriptors."""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress
from typing import Final

__all__ = ["is_ready", "keep_alive", "shut_down"]

_KEEPALIVES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

if sys.platform == "win32":

    def is_ready(descriptor: int) -> bool:
        """Whether something can be read from a socket now."""
        return bool(select.select([descriptor], [], [], 0)[0])

else:

    def is_ready(descriptor: int) -> bool:
        """Whether something can be read from a socket now."""
        poll = select.poll()  # select() does not take large descriptors
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))


def shut_down(descriptor: int) -> None:
    """End a socket under whoever waits for it; one that is closed would never wake them."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
        line.shutdown(socket.SHUT_RDWR)


def keep_alive(descriptor: int) -> None:
    """Have the system notice a host that has gone silent, within a minute."""
    with socket.socket(fileno=os.dup(descriptor)) as line:
        if line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVES.items():
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
