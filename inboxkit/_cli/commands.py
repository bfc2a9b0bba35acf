"""The commands, as click sees them."""

from __future__ import annotations

import sys
from importlib.metadata import version

import click

from .demo import run_demo

__all__ = ["inboxkit"]


@click.group()
@click.version_option(version("inboxkit"))
def inboxkit() -> None:
    """Task inboxes in your service's own SQL tables."""


@inboxkit.command()
def demo() -> None:
    """Run four services on a temporary SQLite file, in real time and then in virtual time."""
    sys.exit(run_demo())
