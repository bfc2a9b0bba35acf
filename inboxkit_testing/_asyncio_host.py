"""Turns a virtual asyncio loop from sync code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import sniffio

if TYPE_CHECKING:
    from ._asyncio_loop import AsyncioBackend
    from .backends import Call

__all__ = ["AsyncioHost"]


class AsyncioHost:
    """An `asyncio.Runner` whose loop runs until one future after another."""

    def __init__(self, backend: AsyncioBackend) -> None:
        self._backend = backend
        self._runner = asyncio.Runner(loop_factory=backend.new_loop)
        self._main: asyncio.Task[None] | None = None

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # As `anyio.run` does it: else each of its calls looks for the loop that it runs in.
        context = copy_context()
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
        loop = self._runner.get_loop()
        self._main = loop.create_task(main(), name="VirtualRunner", context=context)
        self._backend.goes_first(self._main)

    def turn_until(self, call: Call) -> None:
        if call.is_done:
            return
        loop = self._runner.get_loop()
        # At once: a loop that is to end when a future is done makes further steps until it hears of it.
        call.when_done = loop.stop
        loop.run_forever()

    def stop(self) -> None:
        try:
            if self._main is not None:
                self._runner.get_loop().run_until_complete(self._main)
        finally:
            self._runner.close()
