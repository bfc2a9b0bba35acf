"""The command line; `main` is the console script."""

from __future__ import annotations

import io
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without the extra ``cli``, say how to get it."""
    try:
        from .commands import inboxkit  # noqa: PLC0415 - click and rich are an extra
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] in ("click", "rich", "trio"):
            sys.exit(f"inboxkit: {error.name} is not installed: pip install 'inboxkit[cli]'")
        raise
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a name must not keep the work from being done.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            inboxkit(prog_name="inboxkit")
        finally:
            sys.stdout.flush()
    except OSError as error:
        # A full disk, a pipe that nobody reads: what is still in the buffer would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"inboxkit: {error}")
