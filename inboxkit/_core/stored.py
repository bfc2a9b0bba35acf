"""Rows as the database holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inboxkit.errors import DecodeError

from .printing import shorten
from .spec import InboxSpec

__all__ = ["RowMapping", "split_readable"]


def split_readable(
    spec: InboxSpec, values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, DecodeError]]:
    """Return a row's values by the names that Python code uses, those that cannot be read apart.

    Args:
        spec: The table.
        values: By column name; a value that could not be decoded is the DecodeError that says so.
            Columns that the table's description has not are left out.
    """
    readable: dict[str, Any] = {}
    unreadable: dict[str, DecodeError] = {}
    for field, column in spec.names.items():
        if column.name not in values:
            continue
        value = values[column.name]
        if isinstance(value, DecodeError):
            unreadable[field] = value
        else:
            readable[field] = value
    return readable, unreadable


class RowMapping(Mapping[str, Any]):
    """A row of a table that was described by hand: values by the names that Python code uses.

    Reading one that could not be decoded raises its DecodeError.
    """

    __slots__ = ("_readable", "_unreadable")

    def __init__(self, spec: InboxSpec, values: Mapping[str, Any]) -> None:
        self._readable, self._unreadable = split_readable(spec, values)

    def __getitem__(self, name: str) -> Any:
        if name in self._unreadable:
            raise self._unreadable[name].with_traceback(None)
        return self._readable[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._readable
        yield from self._unreadable

    def __len__(self) -> int:
        return len(self._readable) + len(self._unreadable)

    def __contains__(self, name: object) -> bool:
        return name in self._readable or name in self._unreadable

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {shorten(value)}' for name, value in self._readable.items())}}}"
