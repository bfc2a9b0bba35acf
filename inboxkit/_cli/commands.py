"""The commands, as click sees them."""

from __future__ import annotations

import sys
from importlib.metadata import version

import click

__all__ = ["inboxkit"]


@click.group()
@click.version_option(version("inboxkit"))
def inboxkit() -> None:
    """Task inboxes in your service's own SQL tables."""


@inboxkit.command()
def demo() -> None:
    """Run four services on a temporary SQLite file, in real time and then in virtual time."""
    from .demo import run_demo  # noqa: PLC0415 - the only command that needs the testing package

    sys.exit(run_demo())
