"""The command line; `main` is the console script."""

from __future__ import annotations

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
    inboxkit(prog_name="inboxkit")
