"""Values, times and tables of text, as a terminal, a pipe and a program want them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import click

__all__ = ["age", "columns", "cut", "echo_json", "one_line", "plain", "plural"]

LONGEST: Final = 10_000
"""Characters of one value that a person is shown; a program gets all."""


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; ASCII, so that it survives any pipe."""
    click.echo(json.dumps(plain(value), indent=indent))


def plain(value: Any) -> Any:  # noqa: PLR0911 - a return for each kind
    """A value as JSON has it: instants aware and in UTC, bytes as ``{"base64": …}``, what cannot be read
    as ``{"error": …}``, and all that JSON does not know as text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case dict():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case Exception():
            return {"error": str(value)}
        case _:
            return str(value)


def cut(text: str) -> str:
    """A text of any origin over several lines: escaped where a terminal would act on it, and cut."""
    shown = "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text[:LONGEST]
    )
    rest = len(text) - LONGEST
    return f"{shown}… ({rest} characters more)" if rest > 0 else shown


def one_line(value: Any) -> str:
    """A value in a table's cell."""
    text = value if isinstance(value, str) else str(plain(value))
    return cut(text).replace("\n", "\\n")


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table without lines."""
    lines = [list(heads), *map(list, rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def age(seconds: float) -> str:
    """A length of time in its two largest units."""
    whole = max(int(seconds), 0)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def plural(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
