"""Hosts of a test's own: network namespaces, each with a line to this one that can be pulled."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["NETWORK", "Host", "host"]

_numbers = itertools.count(1)
_REFUSALS = ("not permitted", "denied", "Read-only")

NETWORK = "10.213.0.0/16"


class Host:
    """A namespace.

    Attributes:
        name: Of the namespace.
        server: This side's address, as the host sees it.
    """

    def __init__(self, number: int) -> None:
        # Never twice: a namespace that was removed is gone some time later.
        self.name = f"chaos{os.getpid()}x{number}"
        self._line = f"c{os.getpid()}x{number}"
        place = (os.getpid() * 16 + number) % 16_384
        base = place * 4
        self.server = f"10.213.{base // 256}.{base % 256 + 1}"
        self.own = f"10.213.{base // 256}.{base % 256 + 2}"

    def make(self) -> None:
        """Make it, with its line."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self._line, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("addr", "add", f"{self.server}/30", "dev", self._line)
        _ip("link", "set", self._line, "up")
        _ip("-n", self.name, "addr", "add", f"{self.own}/30", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")

    def cut_off(self) -> None:
        """Pull the line: nobody is told."""
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def join_again(self) -> None:
        """Put it in again; what was sent meanwhile is sent again."""
        _ip("-n", self.name, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Remove it, with its line."""
        _ip("link", "del", self._line)
        _ip("netns", "del", self.name)


@contextmanager
def host() -> Iterator[Host]:
    """A host for a block; skips the test where namespaces are not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need iproute2's ip")
    made = Host(next(_numbers))
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        subprocess.run(["ip", "netns", "del", made.name], check=False, capture_output=True)
        if not any(word in error.stderr for word in _REFUSALS):
            raise AssertionError(error.stderr) from error
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    try:
        yield made
    finally:
        made.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
