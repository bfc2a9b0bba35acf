"""``python -m inboxkit``: the command line."""

from __future__ import annotations

from ._cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
