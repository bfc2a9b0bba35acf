"""A test that runs in every cell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from .bench import Bench
from .cells import BACKENDS, CELLS, MODEL, Cell
from .rules import RULES

__all__ = ["COLLECTED", "on_every_form", "on_fifo_forms", "on_key_forms", "places", "serves"]

COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""All tests that were found, before any is left out by name."""

Test = Callable[[Bench], Awaitable[None]]


def places(cells: list[Cell]) -> list[Any]:
    """Each cell on each backend; the model, which waits for nothing, on none."""
    return [
        pytest.param((cell, backend), id=f"{cell}-{backend}" if backend else str(cell))
        for cell in cells
        for backend in (("",) if cell.database == MODEL else BACKENDS)
    ]


def on_every_form(test: Test) -> Callable[..., None]:
    """Run a test on every form, database and backend, and on the model."""
    return _made(test, "on_every_form")


def on_fifo_forms(test: Test) -> Callable[..., None]:
    """Run a test on those whose form serves FIFO groups."""
    return _made(test, "on_fifo_forms")


def on_key_forms(test: Test) -> Callable[..., None]:
    """Run a test on those whose form holds keys."""
    return _made(test, "on_key_forms")


def serves(cell: Cell, decorator: str) -> bool:
    """Whether tests of this kind are run in a cell."""
    rules = RULES[cell.form]
    return {
        "on_every_form": True,
        "on_fifo_forms": rules.has_fifo,
        "on_key_forms": rules.has_keys,
    }[decorator]


def _made(test: Test, decorator: str) -> Callable[..., None]:
    cells = [cell for cell in CELLS if serves(cell, decorator)]

    @pytest.mark.parametrize("on_bench", places(cells), indirect=True)
    def run(on_bench: Callable[[Test], None]) -> None:
        on_bench(test)

    run.__name__ = run.__qualname__ = test.__name__
    run.__doc__, run.__module__ = test.__doc__, test.__module__
    return run
