"""`inboxkit demo`: four services on a temporary file, in real time and then in virtual time."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from inboxkit import SystemClock, events
from inboxkit_testing import Timeline, VirtualClock, recorded, run
from inboxkit_testing.timeline import Note

from .demo_checks import Check, check_real_time, check_virtual_time
from .demo_services import CRASH_AFTER, MESSAGES, real_time, virtual_time
from .examples import Examples, load_examples

__all__ = ["run_demo"]

_real = SystemClock()

_STYLES: tuple[tuple[type[events.Event], str], ...] = (
    (Note, "bold red"),
    (events.Lost, "bold red"),
    (events.DeadLettered, "yellow"),
    (events.Failed, "red"),
    (events.Retried, "cyan"),
    (events.Finished, "green"),
    (events.Renewed, "dim"),
)


def run_demo(console: Console | None = None) -> int:
    """Run it; returns the exit status: 0, or 1 where something came out wrong."""
    console = console or Console(highlight=False)
    examples = load_examples()
    with tempfile.TemporaryDirectory(prefix="inboxkit-demo-") as folder, _quiet_logs():
        checks = [
            *_real_part(console, Path(folder) / "real.db", examples),
            *_virtual_part(console, Path(folder) / "virtual.db", examples),
        ]
    wrong = [check for check in checks if not check.ok]
    if wrong:
        console.print(f"\n[bold red]{len(wrong)} of {len(checks)} checks failed:[/]")
        for check in wrong:
            console.print(Text(f"  {check.text}: {check.found}", style="red"))
        return 1
    console.print(f"\n[bold green]All {len(checks)} checks hold.[/]")
    return 0


def _real_part(console: Console, path: Path, examples: Examples) -> list[Check]:
    console.print(
        f"[bold]In real time[/], on asyncio: four services, {MESSAGES} messages each, one SQLite file"
    )
    began = _real.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.fields[settled]} rows settled"), BarColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=None, settled=0)
        settled = 0

        def count(event: events.Event) -> None:
            nonlocal settled
            settled += isinstance(event, events.Finished | events.DeadLettered)
            progress.update(task, settled=settled)

        with recorded(count) as timeline:
            anyio.run(real_time, path, examples, backend="asyncio")
    console.print(f"  {settled} rows settled in {_real.monotonic() - began:.1f} s")
    return _show(console, check_real_time(path, timeline))


def _virtual_part(console: Console, path: Path, examples: Examples) -> list[Check]:
    console.print(
        "\n[bold]In virtual time[/], on trio: the same services through three days; "
        f"{CRASH_AFTER} into a five-minute render its process dies"
    )
    clock = VirtualClock()
    began = _real.monotonic()
    columns = (SpinnerColumn(), TextColumn("virtual time {task.fields[now]}"), BarColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=timedelta(days=3).total_seconds(), now="")

        def show(event: events.Event) -> None:
            passed = event.at - clock.start
            progress.update(task, completed=passed.total_seconds(), now=str(passed).split(".")[0])

        with recorded(show) as timeline:
            story = run(virtual_time, path, examples, clock, timeline, backend="trio", clock=clock)
    real = _real.monotonic() - began
    virtual = clock.now() - clock.start
    _show_timeline(console, timeline, clock)
    console.print(
        f"\n  {str(virtual).split('.')[0]} of virtual time in {real:.1f} s: "
        f"{virtual.total_seconds() / real:,.0f} times as fast"
    )
    return _show(console, check_virtual_time(path, timeline, story))


def _show_timeline(console: Console, timeline: Timeline, clock: VirtualClock) -> None:
    console.print("[dim]  since the start  service/queue       row[/]")
    for event, line in zip(timeline, timeline.lines(clock.start), strict=True):
        style = next((style for kind, style in _STYLES if isinstance(event, kind)), "")
        console.print(Text("  " + line, style=style), soft_wrap=True)


def _show(console: Console, checks: list[Check]) -> list[Check]:
    for check in checks:
        mark = "[green]✓[/]" if check.ok else "[bold red]✗[/]"
        console.print(f"  {mark} {check.text}")
    return checks


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Warnings of planned failures are in the timeline; on the terminal they would only frighten."""
    loggers = [
        logging.getLogger(name) for name in ("inboxkit", "reports", "accounts", "mailer", "shop")
    ]
    silent = logging.NullHandler()
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.addHandler(silent)
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.propagate = propagate
            logger.removeHandler(silent)
