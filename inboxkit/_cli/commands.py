"""The commands, as click sees them."""

from __future__ import annotations

import sys
from importlib.metadata import version

import click

from .check import check, ddl
from .dead import dead
from .pause import pause, resume
from .run import run
from .stats import stats

__all__ = ["inboxkit"]


@click.group()
@click.version_option(version("inboxkit"))
def inboxkit() -> None:
    """Task inboxes in your service's own SQL tables.

    MODULE:ATTRIBUTE names a Service, or a function that returns one: without parameters, or with the
    database's URL (--url, else $INBOXKIT_URL). Without an attribute it is called service, or app.
    """


for command in (run, check, ddl, stats, dead, pause, resume):
    inboxkit.add_command(command)


@inboxkit.command()
def demo() -> None:
    """Run four services on a temporary SQLite file, in real time and then in virtual time."""
    from .demo import run_demo  # noqa: PLC0415 - the only command that needs the testing package

    sys.exit(run_demo())
