"""How surely the machine finds each bug: each bug, database and loop, with a fresh seed for each run.

    python docs/examples/bugs/rates.py --runs 20 --database sqlite-inloop --backend asyncio

Prints a table: runs that found the bug, the median of examples and of seconds until then, seconds of all
runs, and in how many runs the twin failed. With ``--shrink``, what one run shows for each bug instead.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from searching import DEFAULT_EXAMPLES, Search, search

BUGS = ("charge_twice", "lost_update", "shielded", "swallowed", "needs_order", "poison")
HEAD = f"{'bug':<14}{'database':<15}{'loop':<9}{'found':>9}{'examples':>10}{'most':>6}{'seconds':>9}{'twin':>11}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bugs", nargs="*", default=BUGS, metavar="BUG", help=", ".join(BUGS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--twins", type=int, default=None, metavar="N", help="default as --runs")
    parser.add_argument("--first-seed", type=int, default=1000, metavar="N")
    parser.add_argument("--examples", type=int, default=DEFAULT_EXAMPLES)
    parser.add_argument("--database", action="append", metavar="KIND")
    parser.add_argument("--backend", action="append", choices=("asyncio", "trio"))
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    if not options.shrink:
        print(HEAD, flush=True)
    for bug in options.bugs:
        for database in options.database or ("sqlite-inloop", "postgres"):
            for backend in options.backend or ("asyncio", "trio"):
                if options.shrink:
                    show(bug, database, backend, options)
                else:
                    print(row(bug, database, backend, options), flush=True)


def row(bug: str, database: str, backend: str, options: argparse.Namespace) -> str:
    """One line of the table."""
    where = {"bug": bug, "database": database, "backend": backend}
    first, twins = options.first_seed, options.runs if options.twins is None else options.twins
    buggy = runs("Buggy", range(first, first + options.runs), examples=options.examples, **where)
    fixed = runs("Fixed", range(first, first + twins), examples=options.examples, **where)
    found = [one for one in buggy if one.error is not None]
    wrong = sum(one.error is not None for one in fixed)
    examples = [one.examples for one in buggy]
    return (
        f"{bug:<14}{database:<15}{backend:<9}{f'{len(found)}/{len(buggy)}':>9}{median(examples):>10.1f}"
        f"{max(examples):>6}{median(one.seconds for one in buggy):>9.2f}{f'{wrong}/{len(fixed)}':>11}"
    )


def runs(
    name: str, seeds: range, *, bug: str, database: str, backend: str, examples: int
) -> list[Search]:
    """One run for each seed; tells of those that are not as they should be."""
    machine = getattr(importlib.import_module(f"test_{bug}"), name)
    made = [search(machine, database, backend, number=n, examples=examples) for n in seeds]
    for number, one in zip(seeds, made, strict=True):
        if (one.error is None) == (name == "Buggy"):
            where = f"{bug} {name} {database} {backend}, seed {number}"
            print(f"  {where}: {one.error!r:.300}", file=sys.stderr)
    return made


def show(bug: str, database: str, backend: str, options: argparse.Namespace) -> None:
    """What a person sees of a bug."""
    machine = importlib.import_module(f"test_{bug}").Buggy
    found = search(
        machine,
        database,
        backend,
        number=options.first_seed,
        examples=options.examples,
        shrink=True,
    )
    print(f"\n=== {bug}, {database}, {backend}: {found.examples} examples, {found.seconds:.1f} s\n")
    if found.error is not None:
        print("\n".join([f"{found.error!r:.200}", *found.error.__notes__]), flush=True)


if __name__ == "__main__":
    main()
