"""``inboxkit pause`` and ``inboxkit resume``."""

from __future__ import annotations

import click

from inboxkit._operating.pausing import set_paused
from inboxkit.service import Service

from .common import as_json, of_service, on_service
from .loading import load_service
from .showing import age, echo_json

__all__ = ["pause", "resume"]

_queues = click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")


@click.command()
@of_service
@_queues
@as_json
def pause(target: str, url: str | None, queues: tuple[str, ...], is_json: bool) -> None:
    """Let nobody claim from queues until they are resumed; rows in work go on to their end.

    Every running service sees it within its broker's poll_interval, and it outlives restarts.
    """
    _set(load_service(target, url), queues, paused=True, is_json=is_json)


@click.command()
@of_service
@_queues
@as_json
def resume(target: str, url: str | None, queues: tuple[str, ...], is_json: bool) -> None:
    """Let paused queues be claimed from again."""
    _set(load_service(target, url), queues, paused=False, is_json=is_json)


def _set(service: Service, queues: tuple[str, ...], *, paused: bool, is_json: bool) -> None:
    if service.control is None:
        raise click.UsageError(
            f"service {service.name!r} has no control table; give it one, as in "
            "Service(…, control_table='inbox_control'), and make the table that inboxkit ddl prints"
        )
    known = [one.queue.name for one in service.included]
    for queue in queues:
        if queue not in known:
            raise click.UsageError(
                f"service {service.name!r} serves no queue {queue!r}; it has "
                f"{', '.join(map(repr, known)) or 'none'}"
            )
    changed = on_service(service, lambda service: set_paused(service, queues, paused=paused))
    if is_json:
        echo_json(
            {
                "queues": [
                    {"queue": queue, "paused": paused, "changed": queue in changed}
                    for queue in queues
                ]
            }
        )
        return
    what = "paused" if paused else "resumed"
    seconds = service.broker.poll_interval.total_seconds()
    for queue in queues:
        if queue in changed:
            within = f"{seconds:g} s" if seconds < 1 else age(seconds)
            click.echo(f"queue {queue!r} is {what}; running services see it within {within}")
        else:
            click.echo(f"queue {queue!r} was {'paused' if paused else 'not paused'} already")
