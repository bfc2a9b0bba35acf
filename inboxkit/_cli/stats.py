"""``inboxkit stats``: how each queue stands, once or again and again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from inboxkit._operating.counting import QueueStanding, count_queues
from inboxkit._sql.stats import MOST
from inboxkit.errors import DatabaseError
from inboxkit.service import Service

from .common import as_json, of_service, on_service
from .failing import without_secrets
from .loading import load_service
from .showing import age, columns, echo_json, one_line

__all__ = ["stats"]

_HEADS = ("queue", "due", "waiting", "in work", "expired", "dead", "oldest due")
_COUNTS = ("due", "waiting", "in_work", "expired", "dead")


@click.command()
@of_service
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: between two looks.",
)
@as_json
def stats(target: str, url: str | None, watch: bool, interval: float, is_json: bool) -> None:
    """Count the rows of each queue: due, waiting for their time, in work, expired, dead.

    Counts stop at 10,000. In the row lock and advisory lock forms rows in work are unknown, and count
    as due. With --watch and --json each look is a line.
    """
    service = load_service(target, url)
    if watch:
        with suppress(KeyboardInterrupt):
            on_service(service, lambda service: _watch(service, interval, is_json=is_json))
        return
    found = on_service(service, count_queues)
    if is_json:
        echo_json(_document(found))
    else:
        click.echo("\n".join(_lines(found)))


async def _watch(service: Service, interval: float, *, is_json: bool) -> None:
    is_live = sys.stdout.isatty() and not is_json
    with Live(Text(), console=Console(), auto_refresh=False) if is_live else nullcontext() as live:
        while True:
            try:
                found = await count_queues(service)
            except DatabaseError as error:
                click.echo(f"inboxkit: {without_secrets(str(error))}", err=True)
            else:
                if live is not None:
                    live.update(Text("\n".join(_lines(found))), refresh=True)
                elif is_json:
                    echo_json(_document(found), indent=None)
                else:
                    click.echo("\n".join(_lines(found)) + "\n")
            sys.stdout.flush()
            await service.broker.database.clock.sleep(interval)


def _document(found: Sequence[QueueStanding]) -> dict[str, Any]:
    """The same keys always; null is what is unknown, or not there."""
    return {"queues": [_queue(one) for one in found]}


def _queue(one: QueueStanding) -> dict[str, Any]:
    rows = one.rows
    counts = {name: getattr(rows, name) for name in _COUNTS}
    return {
        "queue": one.queue,
        "table": one.table,
        "form": one.form,
        "at": rows.at,
        **{name: count if count is None else min(count, MOST) for name, count in counts.items()},
        "at_least": [name for name, count in counts.items() if count is not None and count > MOST],
        "oldest_due": rows.oldest_due,
        "dead_letter": one.dead_letter,
        "paused": one.is_paused,
    }


def _lines(found: Sequence[QueueStanding]) -> list[str]:
    return columns(_HEADS, [_row(one) for one in found])


def _row(one: QueueStanding) -> list[str]:
    rows = one.rows
    return [
        one_line(one.queue) + (" (paused)" if one.is_paused else ""),
        _count(rows.due),
        _count(rows.waiting),
        "unknown" if rows.in_work is None else _count(rows.in_work),
        "-" if rows.expired is None else _count(rows.expired),
        "-" if rows.dead is None else _count(rows.dead),
        "-" if rows.oldest_due is None else _since(rows.oldest_due, rows.at),
    ]


def _count(count: int) -> str:
    return f"{MOST}+" if count > MOST else str(count)


def _since(instant: datetime, now: datetime) -> str:
    return f"{age((now - instant).total_seconds())} ago"
