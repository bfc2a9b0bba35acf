"""Rows as the user reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from inboxkit._sql.statement import Answer

__all__ = ["Record", "records"]

_OWN = frozenset({"as_dict", "keys"})


class Record(tuple[Any, ...]):
    """One row: a tuple whose values can also be had by the column's name.

    ``row[0]``, ``row["id"]`` and ``row.id`` are the same value. Where two columns have one name, it
    means the first; a column called ``keys`` or ``as_dict`` is read by ``row["keys"]``.
    """

    __slots__ = ()
    _positions: ClassVar[dict[str, int]] = {}

    def __getitem__(self, key: Any, /) -> Any:
        if isinstance(key, str):
            try:
                key = self._positions[key]
            except KeyError:
                raise KeyError(f"{key!r}: the row has the columns {self.keys()}") from None
        return tuple.__getitem__(self, key)

    def __getattribute__(self, name: str, /) -> Any:
        # Not __getattr__: a column may be called count or index, like a method of tuple.
        get = object.__getattribute__
        if not name.startswith("_") and name not in _OWN:
            position = get(self, "_positions").get(name)
            if position is not None:
                return tuple.__getitem__(self, position)
        return get(self, name)

    def keys(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._positions)

    def as_dict(self) -> dict[str, Any]:
        """The row as a dict, by column name."""
        return {
            name: tuple.__getitem__(self, position) for name, position in self._positions.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _record, (self.keys(), tuple(self))

    def __repr__(self) -> str:
        return f"<Record {' '.join(f'{name}={value!r}' for name, value in self.as_dict().items())}>"


def records(answer: Answer) -> list[Record]:
    """The rows of an answer."""
    rows = answer.rows
    return [*map(_class(answer.columns), rows)] if rows else []


def _record(columns: tuple[str, ...], values: Sequence[Any]) -> Record:
    return _class(columns)(values)


@lru_cache(maxsize=256)
def _class(columns: tuple[str, ...]) -> type[Record]:
    """A class that knows the columns, so that no row has to carry them."""
    positions = {name: position for position, name in reversed(list(enumerate(columns)))}
    ordered = {name: positions[name] for name in dict.fromkeys(columns)}
    return type("Record", (Record,), {"__slots__": (), "_positions": ordered})
