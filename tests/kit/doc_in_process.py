"""Commands run in this process: a process of their own would be mostly imports."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["KNOWN", "run_here"]


def _inboxkit(arguments: list[str]) -> None:
    from inboxkit._cli.commands import inboxkit

    inboxkit(arguments, prog_name="inboxkit")


def _alembic(arguments: list[str]) -> None:
    from alembic.config import main

    main(arguments, prog="alembic")


KNOWN: dict[str, Callable[[list[str]], None]] = {"inboxkit": _inboxkit, "alembic": _alembic}


def run_here(
    name: str, arguments: list[str], folder: Path, environment: dict[str, str]
) -> tuple[int, str]:
    """Run one of the known commands as from a shell.

    Args:
        name: Of the command.
        arguments: What follows it.
        folder: The working directory. Modules that lie there are imported anew, and forgotten again.
        environment: All of it.

    Returns:
        Its exit status, and what it printed on both streams.
    """
    printed, status = io.StringIO(), 0
    with _as_in(folder, environment), warnings.catch_warnings():
        warnings.simplefilter("default")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                KNOWN[name](arguments)
            except SystemExit as end:
                if isinstance(end.code, str):
                    print(end.code)
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return status, printed.getvalue()


@contextlib.contextmanager
def _as_in(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    before, path, variables = Path.cwd(), list(sys.path), dict(os.environ)
    local = {file.stem for file in folder.glob("*.py")}
    kept = {name: sys.modules.pop(name) for name in local & set(sys.modules)}
    importlib.invalidate_caches()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(before)
        sys.path[:] = path
        for name in local:
            sys.modules.pop(name, None)
        sys.modules.update(kept)
