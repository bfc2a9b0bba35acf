"""Where it was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from .places import Place

__all__ = ["facts"]

_PACKAGES: Final = (
    *("inboxkit", "anyio", "trio", "msgspec", "asyncpg", "psycopg", "psycopg-binary"),
    *("aiosqlite", "asyncmy", "PyMySQL"),
)


def facts(places: Sequence[Place]) -> Mapping[str, Mapping[str, str]]:
    """Machine, versions and settings, by what they are of."""
    return {
        "machine": dict(_machine()),
        "packages": dict(_packages()),
        **{place.name: place.settings() for place in places},
    }


def _machine() -> Iterator[tuple[str, str]]:
    yield "system", platform.platform()
    yield "processor", _processor()
    yield "cores", str(os.cpu_count())
    yield "load at the start", " ".join(f"{load:.1f}" for load in os.getloadavg())
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _packages() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"
