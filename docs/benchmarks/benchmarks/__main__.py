"""``python -m benchmarks``: measure, and print a report in Markdown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from . import __doc__ as about
from .cases import SUBJECTS, Scale, cases_of
from .chart import as_svg
from .machine import facts
from .on_mysql import MysqlPlace
from .on_postgres import PostgresPlace
from .on_sqlite import SqlitePlace
from .places import Place
from .report import as_json, as_markdown
from .results import measure
from .targets import targets_of

__all__ = ["main"]

_BACKENDS: Final = ("asyncio", "trio")
_DATABASES: Final = ("sqlite", "postgres", "mariadb", "mysql")
_DEFAULT: Final = ("sqlite", "postgres", "mariadb")
_FULL: Final = Scale(many=10_000, few=2_000, bulks=20, published=60, claims=40, in_memory=10_000)
_QUICK: Final = Scale(many=60, few=20, bulks=1, published=3, claims=4, in_memory=100, shrink=500)


def main(arguments: list[str] | None = None) -> int:
    """Measure what the arguments name; print the report, and write what they ask for.

    Returns:
        0; 1 where a case failed. A missed target is no failure.
    """
    chosen = _parser().parse_args(arguments)
    scale, rounds = _QUICK if chosen.quick else _FULL, chosen.rounds or (1 if chosen.quick else 5)
    urls = {name: getattr(chosen, f"{name}_url") for name in _DATABASES if name != "sqlite"}
    with ExitStack() as opened:
        places: list[Place] = []
        for make in _makers(chosen.databases, urls):
            places.append(make())
            opened.callback(places[-1].close)
        found = facts(places)
        cases = list(cases_of(places, chosen.backends, chosen.only, scale))
        results = measure(cases, rounds)
    names = [place.name for place in places]
    targets = list(targets_of(names, chosen.backends, chosen.only, scale.in_memory))
    if chosen.quick:
        print(
            "A quick run: it shows that all of it works. Its figures and verdicts mean nothing.\n"
        )
    print(as_markdown(found, cases, targets, results, rounds))
    if chosen.json is not None:
        report = as_json(found, cases, targets, results, rounds)
        chosen.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    if chosen.svg is not None:
        chosen.svg.write_text(as_svg(targets, results))
    return 1 if results.failures else 0


def _makers(databases: list[str], urls: dict[str, str | None]) -> Iterator[Callable[[], Place]]:
    for name in databases:
        if name == "sqlite":
            yield partial(SqlitePlace, "normal")
            yield partial(SqlitePlace, "full")
        elif name == "postgres":
            yield partial(PostgresPlace, urls["postgres"])
        else:
            yield partial(MysqlPlace, name, urls[name])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=about)
    parser.add_argument(
        "--quick", action="store_true", help="few rows, one round: to see that all of it runs"
    )
    parser.add_argument("--rounds", type=int, help="how often each case is run; default 5")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=SUBJECTS)
    parser.add_argument("--databases", nargs="+", choices=_DATABASES, default=_DEFAULT)
    parser.add_argument("--backends", nargs="+", choices=_BACKENDS, default=_BACKENDS)
    for name in _DATABASES[1:]:
        parser.add_argument(
            f"--{name}-url", metavar="URL", help=f"a {name} to use; default: one of our own"
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the targets there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
