"""Every block of code in README.md and in the guides runs.

In a page of Markdown

- a Python block whose first line is a comment with a file's name is saved as that file; all others of the
  page are one module, in order, which pytest runs, its tests too;
- of a ``console`` block each line behind ``$`` is run, and prints what stands below it (``…`` is
  anything, ``^C`` is Ctrl-C); of an ``sh`` block each line is run. ``docs/examples`` is there;
- an SQL block names its database in its first line, ``-- PostgreSQL``, and is run there;
- ``<!-- test`` … ``-->`` (Python), ``<!-- run`` (``sh``) and ``<!-- sql`` hold the same, for no reader: what
  tries the rest;
- ``<!-- not run: why -->`` stands before a block that cannot be run;
- ``<!-- databases: sqlite, postgres -->`` and ``<!-- backends: asyncio, trio -->`` say where tests run.
"""

from __future__ import annotations

import configparser
import importlib
import re
import shutil
import sqlite3
import tomllib
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from doc_commands import Command, Shell, commands, matches
from doc_pages import ROOT, Block, Page, pages, parse_page, read_page

import inboxkit_testing
from inboxkit._db.mysql_url import read_target
from inboxkit.errors import MissingExtraError

# pytester forgets what a run in this process imports: the next one would pay for it again, and meet classes of
# the same name that are not the same.
for _name in (
    "alembic",
    "asyncpg",
    "fastapi",
    "httpx",
    "hypothesis",
    "inboxkit.contrib.asyncpg",
    "inboxkit.contrib.sqlalchemy",
    "psycopg",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "trio",
):
    with suppress(ImportError, MissingExtraError):
        importlib.import_module(_name)
for _name in inboxkit_testing.__all__:
    with suppress(ImportError, MissingExtraError):
        getattr(inboxkit_testing, _name)

POSTGRES = "postgresql://localhost/shop"
"""What pages call their PostgreSQL database."""
LANGUAGES = {"python", "sh", "console", "sql", "ini", "toml", "yaml", "text"}
NEEDS = {
    "alembic.md": ("alembic",),
    "fastapi.md": ("fastapi", "httpx"),
    "django.md": ("django",),
}
"""Beside what the extra ``all`` has."""
ELSEWHERE = {
    "inboxkit demo": "tests/docs/test_demo.py",
    "pytest": "this run",
    "python reports.py --publish 20 --until-empty": "tests/docs/test_examples_run.py",
    "python mailer.py --backend trio --publish 20 --until-empty": "tests/docs/test_examples_run.py",
}
PROGRAMS = {"telemetry.md": "tests/docs/test_how_to.py"}
"""Pages whose Python is one program that another test runs."""
MOST_NOT_RUN = 3
PAGES = pages()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(
    path: Path, pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    for module in NEEDS.get(path.name, ()):
        pytest.importorskip(module)
    page = read_page(path)
    Reader(page, pytester, request).follow()


class Reader:
    """Somebody who does what a page says."""

    def __init__(
        self, page: Page, pytester: pytest.Pytester, request: pytest.FixtureRequest
    ) -> None:
        self._page = page
        self._pytester = pytester
        self._request = request
        self._folder = pytester.path
        self._urls = self._servers()
        shutil.copytree(
            ROOT / "docs/examples",
            self._folder / "docs/examples",
            ignore=shutil.ignore_patterns("__pycache__", "test_*", "bugs", "conftest.py"),
        )
        self._shell = Shell(self._folder, {}, ELSEWHERE)

    def follow(self) -> None:
        """Do it all, in order; then the tests."""
        for block in self._page.blocks:
            if block.reason:
                continue
            try:
                self._do(block)
            except Exception as error:
                error.add_note(f"{name_of(self._page.path)}, line {block.line}")
                raise
        if self._page.module and self._page.path.name not in PROGRAMS:
            self._test(self._page.module)

    def _do(self, block: Block) -> None:
        assert block.language in LANGUAGES, f"a block of {block.language!r}, which nobody tests"
        text = self._here(block.text)
        if block.file is not None:
            file = self._shell.folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return
        match block.language:
            case "sh" | "console":
                for command in commands(block.language, text):
                    self._shell.run(command)
            case "sql":
                self._execute(text)
            case "toml":
                tomllib.loads(text)
            case "yaml":
                list(pytest.importorskip("yaml").safe_load_all(text))
            case "ini":
                configparser.ConfigParser().read_string(text)

    def _servers(self) -> dict[str, str]:
        """What the page calls its databases, and where they are."""
        text = self._page.path.read_text()
        if (
            POSTGRES.partition("//")[2] in text
            or "-- PostgreSQL" in text
            or "postgres" in self._page.databases
        ):
            return {POSTGRES: self._request.getfixturevalue("postgres_url")}
        return {}

    def _here(self, text: str) -> str:
        for told, url in self._urls.items():
            text = text.replace(told.partition(":")[2], url.partition(":")[2])
        return text

    def _test(self, module: str) -> None:
        file = f"test_{self._page.path.stem.lower().replace('-', '_')}.py"
        (self._folder / file).write_text(self._here(module))
        plugins = ("asyncio", "trio", "xdist", "cacheprovider")
        result = self._pytester.runpytest_inprocess(
            file,
            *(option for plugin in plugins for option in ("-p", f"no:{plugin}")),
            *("-W", "error", "-q", "--import-mode=importlib"),
            f"--inbox-db={','.join(self._page.databases)}",
            f"--inbox-backend={','.join(self._page.backends)}",
        )
        outcomes = result.parseoutcomes()
        told = f"{name_of(self._page.path)}: {outcomes}\n{result.stdout}\n{result.stderr}"
        # At least one: functions that nobody calls have not run.
        assert set(outcomes) == {"passed"}, told

    def _execute(self, text: str) -> None:
        first = text.partition("\n")[0].removeprefix("-- ")
        match first.partition(":")[0]:
            case "PostgreSQL":
                with psycopg.connect(self._urls[POSTGRES], autocommit=True) as connection:
                    connection.execute(text.encode())
            case "SQLite":
                with closing(sqlite3.connect(self._folder / "page.db")) as file:
                    file.executescript(text)
            case "MariaDB" | "MySQL" as name:
                server = self._request.getfixturevalue(f"emptied_{name.lower()}")
                target = read_target(f"mysql://{server}")
                opened: Any = pymysql.connect(
                    host=target.host,
                    port=target.port,
                    user=target.user,
                    password=target.password,
                    database=target.database,
                )
                with opened, opened.cursor() as cursor:
                    for statement in filter(str.strip, text.split(";")):
                        cursor.execute(statement)
            case _:
                raise AssertionError(
                    f"SQL begins with its database, as in '-- SQLite'; not {first!r}"
                )


def test_what_is_not_run_is_little_and_says_why() -> None:
    found = [
        f"{name_of(path)}:{block.line}: {block.reason}"
        for path in PAGES
        for block in read_page(path).blocks
        if block.reason
    ]
    assert len(found) <= MOST_NOT_RUN, "\n".join(found)


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    assert [to for to in LINK.findall(path.read_text()) if not (path.parent / to).exists()] == []


SAMPLE = """\
<!-- databases: sqlite, postgres -->

```python
# shop.py
a = 1
```

```python
b = 2
```

<!-- test
assert b == 2
-->

<!-- not run: it needs
a cluster -->
```yaml
a: 1
```

```{toctree}
x
```

```console
$ inboxkit ddl a
$ inboxkit run shop
started …
^C
stopped
$ cd docs
```
"""


def test_a_page_is_read_as_its_blocks() -> None:
    page = parse_page(Path("page.md"), SAMPLE)
    assert page.databases == ("sqlite", "postgres")
    assert page.backends == ("asyncio",)
    assert [(one.language, one.line, one.file, one.reason) for one in page.blocks] == [
        ("python", 4, "shop.py", ""),
        ("python", 9, None, ""),
        ("python", 13, None, ""),
        ("yaml", 19, None, "it needs a cluster"),
        ("console", 27, None, ""),
    ]
    assert page.module.splitlines()[8:] == ["b = 2", "", "", "", "assert b == 2"]
    assert list(commands("console", page.blocks[-1].text)) == [
        Command("inboxkit ddl a", ""),
        Command("inboxkit run shop", "started …\n^C\nstopped", interrupted=True),
        Command("cd docs", ""),
    ]


def test_a_reason_without_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block follows 'why'"):
        parse_page(Path("page.md"), "<!-- not run: why -->\n\ntext\n")


def test_output_is_compared_but_for_times() -> None:
    assert matches("1 passed in 0.12s", "1 passed in 13.1s\n")
    assert matches("2026-01-02 03:04:05,678 x\n… y", "2027-11-12 13:14:15,999 x\nand y  \n")
    assert not matches("2 passed", "3 passed")
    assert not matches("a", "a\nb")


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("```python\ndef test_it():\n    assert 1 == 2\n```\n", "test_page.py:3: AssertionError"),
        ("```python\nmissing\n```\n", "NameError"),
        ("```console\n$ inboxkit --version\ninboxkit, version 9\n```\n", "the page says"),
        ("```sh\ninboxkit nothing\n```\n", "ended with 2"),
        ("```sh\nrm -rf /\n```\n", "nobody knows"),
        ("```sh\npip install 'inboxkit[nothing]'\n```\n", "extras that there are not"),
        ("```sql\n-- SQLite\nSELECT missing\n```\n", "no such column"),
        ("```sql\nSELECT 1\n```\n", "begins with its database"),
        ("```toml\na =\n```\n", "Invalid"),
        ("```rust\n```\n", "'rust'"),
    ],
)
def test_what_does_not_run_is_found(
    page: str, told: str, pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    path = pytester.path / "page.md"
    path.write_text(page)
    with pytest.raises((Exception, pytest.fail.Exception), match=told):
        Reader(parse_page(path, page), pytester, request).follow()
