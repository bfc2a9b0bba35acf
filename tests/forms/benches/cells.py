"""Which claim form is served on which database, as it is documented, and which of that is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from inboxkit.abc import ClaimFormName

__all__ = [
    "BACKENDS",
    "CELLS",
    "COLLECTED",
    "DATABASES",
    "MODEL",
    "REFUSED",
    "SERVED",
    "UNBUILT",
    "Cell",
    "dialect_of",
    "places",
]


@dataclass(frozen=True, order=True)
class Cell:
    """One claim form on one database, or on the model."""

    form: ClaimFormName
    database: str

    def __str__(self) -> str:
        return f"{self.form} on {self.database}".replace(" ", "-")


DATABASES: Final = ("sqlite", "postgres", "mariadb", "mysql")
BACKENDS: Final = ("asyncio", "trio")
MODEL: Final = "model"

SERVED: Final[dict[ClaimFormName, tuple[str, ...]]] = {
    "row lock": ("postgres", "mariadb", "mysql"),
    "lease": ("sqlite", "postgres", "mariadb", "mysql"),
    "advisory lock": ("sqlite", "postgres", "mariadb", "mysql"),
}
REFUSED: Final = [
    Cell(form, name) for form in SERVED for name in DATABASES if name not in SERVED[form]
]

BUILT: Final = [
    Cell("lease", "sqlite"),
    Cell("lease", "postgres"),
    Cell("lease", "mariadb"),
    Cell("lease", "mysql"),
    Cell("row lock", "postgres"),
    Cell("row lock", "mariadb"),
    Cell("row lock", "mysql"),
    Cell("advisory lock", "sqlite"),
    Cell("advisory lock", "postgres"),
    Cell("advisory lock", "mariadb"),
    Cell("advisory lock", "mysql"),
]
"""What works by now. A cell that is served and not in here must refuse to open, so that it is not
forgotten once it does."""

_DIALECTS: Final = {"mariadb": "mysql"}


def dialect_of(database: str) -> str:
    """The name of a database's dialect: MariaDB and MySQL have one."""
    return _DIALECTS.get(database, database)


_WORKING: Final = {(cell.form, dialect_of(cell.database)) for cell in BUILT}
UNBUILT: Final = [
    Cell(form, name)
    for form in SERVED
    for name in SERVED[form]
    if (form, dialect_of(name)) not in _WORKING
]
CELLS: Final = [*(Cell(form, MODEL) for form in SERVED), *BUILT]
"""Where the suite runs."""

COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""All tests that were found, before any is left out by name."""


def places(form: ClaimFormName) -> list[Any]:
    """Each cell of a form on each backend; the model, which waits for nothing, on none."""
    return [
        pytest.param((cell, backend), id=f"{cell}-{backend}" if backend else str(cell))
        for cell in CELLS
        for backend in (("",) if cell.database == MODEL else BACKENDS)
        if cell.form == form
    ]
