"""``inboxkit run``: serve until a signal."""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext

import anyio
import click
from rich.console import Console
from rich.logging import RichHandler

from inboxkit._including import Included
from inboxkit.errors import InboxkitError
from inboxkit.service import Service

from .common import of_service
from .counting import Counts
from .failing import Failure, describe
from .loading import load_service
from .progress import Progress
from .showing import columns, one_line, plural

__all__ = ["run"]

_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@of_service
@click.option(
    "--backend",
    type=click.Choice(["asyncio", "trio"]),
    default="asyncio",
    show_default=True,
    help="The event loop.",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS),
    default="info",
    show_default=True,
    help="Of the log on stderr, where the service's own code sets none up.",
)
def run(target: str, url: str | None, backend: str, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM, which lets the handlers in work finish; a second one cancels them
    and gives their rows back.

    What the command line does not say is as the service's code has it.
    """
    service = load_service(target, url)
    console = Console(stderr=True)
    _set_up_log(console, log_level)
    click.echo("\n".join(_settings(service, backend)))
    sys.stdout.flush()
    counts = Counts(service.name)
    service.on_event(counts.tell)
    progress = Progress(counts, console) if console.is_terminal else nullcontext()
    try:
        with progress:
            anyio.run(service.run, backend=backend)
    except InboxkitError:
        raise
    except Exception as error:
        raise Failure(f"service {service.name!r} stopped: {describe(error)}") from error
    finally:
        click.echo("\n".join(_summary(counts)))


def _set_up_log(console: Console, level: str) -> None:
    """As a program without logging of its own needs it."""
    root = logging.getLogger()
    if root.handlers:
        return
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False, markup=False)
        logging.basicConfig(level=level.upper(), format="%(message)s", handlers=[handler])
    else:
        logging.basicConfig(
            level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
        )


def _settings(service: Service, backend: str) -> list[str]:
    database = service.broker.database
    whole = (
        f"service {one_line(service.name)}: {database!r}, backend {backend}, "
        f"pool of {database.pool_size}, drain {service.drain_timeout.total_seconds():g} s"
    )
    return [whole, *(_queue(service, one) for one in service.included)]


def _queue(service: Service, one: Included) -> str:
    queue, broker = one.queue, service.broker
    parts: list[str] = [one.spec.form]
    if one.spec.locked_until is not None:
        parts[0] += f" of {(queue.lease or broker.lease).total_seconds():g} s"
    parts.append(
        plural(one.workers, "worker")
        if one.workers_by_key is None
        else f"{plural(one.workers_by_key, 'worker')} by key"
    )
    if one.prefetch:
        parts.append(f"{one.prefetch} claimed ahead")
    if one.destination is not None:
        parts.append(f"{plural(one.max_attempts or 0, 'attempt')}, then {one.destination.name!r}")
    parts.append(f"poll {(queue.poll_interval or broker.poll_interval).total_seconds():g} s")
    return f"  queue {one_line(queue.name)}: {', '.join(parts)}"


def _summary(counts: Counts) -> list[str]:
    left = [
        f"left in work: row {id!r} of queue {queue!r}; it comes back when its lease or session ends"
        for queue, id in counts.left
    ]
    if not counts.queues:
        return ["no row was handled", *left]
    heads, rows = counts.table()
    return [*columns(heads, rows), *left]
