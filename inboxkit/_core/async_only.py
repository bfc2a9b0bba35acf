"""What a ``with`` in place of an ``async with`` is told."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["AsyncOnly"]


class AsyncOnly:
    """A base of async context managers: a plain ``with`` says what to write."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} is an async context manager: write async with, not with")

    def __exit__(self, *_: object) -> None:
        """Never reached."""
