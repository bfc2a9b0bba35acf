"""What claim forms ask of a `Database`."""

from __future__ import annotations

from typing import Protocol, TypeVar

from inboxkit._sql.statement import Script

__all__ = ["Runner"]

T = TypeVar("T")


class Runner(Protocol):
    """Runs scripts; a `Database` is one."""

    async def run(self, script: Script[T], /) -> T:
        """Run a script on a connection of its own, as `DriverConnection.run` says."""
        ...
