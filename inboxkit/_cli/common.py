"""What the commands share: the service's name and URL, JSON, and a broker that is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import click

from inboxkit._runtime.running import bare_errors
from inboxkit.service import Service

from .failing import failing_well
from .loading import URL_VARIABLE

__all__ = ["Command", "as_json", "of_service", "on_service", "url_option"]

T = TypeVar("T")
Command = Callable[..., Any]

url_option = click.option(
    "--url",
    metavar="URL",
    help=f"The database, for a function that takes it; else ${URL_VARIABLE}.",
)
as_json = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


def of_service(command: Command) -> Command:
    """Give a command the argument ``module:attribute`` and the option ``--url``."""
    target = click.argument("target", metavar="MODULE[:ATTRIBUTE]")
    return target(url_option(failing_well(command)))


def on_service(service: Service, work: Callable[[Service], Awaitable[T]]) -> T:
    """Run async work while the service's broker is open, and close what was opened.

    Raises:
        InboxkitError: The database cannot be reached, is a SQLite file that is not there, or what the
            work raises.
    """

    async def main() -> T:
        service.broker.database.check_exists()
        async with service.broker:
            return await work(service)

    with bare_errors():
        return anyio.run(main)
