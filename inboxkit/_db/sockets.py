"""Looks at a library's sockets, and ends them, by their descriptors."""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress

__all__ = ["is_ready", "shut_down"]

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
