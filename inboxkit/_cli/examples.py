"""The four example services, which the wheel carries and a checkout has under docs/."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

__all__ = ["Examples", "load_examples"]


class Examples(NamedTuple):
    """The modules of the examples."""

    reports: ModuleType
    accounts: ModuleType
    shop: ModuleType
    mailer: ModuleType

    @property
    def main(self) -> ModuleType:
        """What runs them from a command line."""
        return sys.modules["_main"]


def load_examples() -> Examples:
    """Import the examples.

    They import each other's helpers by plain names, as scripts do, so their folder goes on the path.
    """
    folder = str(_folder())
    sys.path.insert(0, folder)
    try:
        return Examples(*(importlib.import_module(name) for name in Examples._fields))
    finally:
        sys.path.remove(folder)


def _folder() -> Path:
    package = Path(__file__).parent
    shipped = package / "example_services"
    return shipped if shipped.is_dir() else package.parent.parent / "docs" / "examples"
