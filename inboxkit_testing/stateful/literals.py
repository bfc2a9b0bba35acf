"""Values as Python source, with the imports that it needs."""

from __future__ import annotations

import dataclasses
import enum
import math
import sys
import types
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

__all__ = ["Source"]

_PLAIN = (bool, int, str, bytes, type(None), types.EllipsisType)


class Source:
    """Writes values down, and collects what must be imported for them.

    What cannot be written is written as its `repr`, and told in `doubts`.
    """

    def __init__(self) -> None:
        self.imports: dict[str, set[str]] = {}
        """Names by module."""
        self.doubts: list[str] = []
        """What the reader has to look at."""

    def name(self, value: Any) -> str:
        """The name of a function or class, imported from where it is."""
        module = getattr(value, "__module__", None)
        path = getattr(value, "__qualname__", "")
        if module in (None, "builtins"):
            return path or repr(value)
        found = _lookup(module, path)
        if found is not value or "<" in path:
            self.doubts.append(f"`{path.rpartition('.')[2]}` is not to be had from {module!r}")
            return path.rpartition(".")[2] if "<lambda>" not in path else "FUNCTION"
        self.add(module, path.partition(".")[0])
        return path

    def add(self, module: str, name: str) -> None:
        """Import a name."""
        self.imports.setdefault(module, set()).add(name)

    def lines(self) -> list[str]:
        """The imports."""
        ordered = sorted(self.imports.items(), key=lambda item: (_rank(item[0]), item[0]))
        return [f"from {module} import {', '.join(sorted(names))}" for module, names in ordered]

    def value(self, value: Any) -> str:
        """One value."""
        kind = type(value)
        if kind in _PLAIN:
            return _double_quoted(repr(value))
        if kind is float:
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, enum.Enum):
            return f"{self.name(kind)}.{value.name}"
        if (write := _WRITERS.get(kind)) is not None:
            return write(self, value)
        if (fields := _fields(value)) is not None:
            return self._call(kind, fields)
        self.doubts.append(f"{value!r} is written as its repr")
        return repr(value)

    def _call(self, kind: type, fields: Mapping[str, Any]) -> str:
        inside = ", ".join(f"{name}={self.value(each)}" for name, each in fields.items())
        return f"{self.name(kind)}({inside})"

    def _several(self, values: Any) -> str:
        return ", ".join(map(self.value, values))

    def _dict(self, value: Mapping[Any, Any]) -> str:
        pairs = (f"{self.value(key)}: {self.value(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"

    def _tuple(self, value: tuple[Any, ...]) -> str:
        return f"({self._several(value)}{',' if len(value) == 1 else ''})"

    def _set(self, value: set[Any] | frozenset[Any]) -> str:
        inside = f"{{{self._several(sorted(value, key=repr))}}}" if value else ""
        name = "frozenset" if isinstance(value, frozenset) else "set"
        return inside if inside and name == "set" else f"{name}({inside})"

    def _timedelta(self, value: timedelta) -> str:
        self.add("datetime", "timedelta")
        parts = {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
        if not value.days and value.seconds and value.microseconds:
            return f"timedelta(seconds={value.total_seconds():g})"
        if value < timedelta(0):
            return f"-{self._timedelta(-value)}"
        told = ", ".join(f"{name}={n}" for name, n in parts.items() if n) or "0"
        return f"timedelta({told})"

    def _of_datetime(self, value: Any) -> str:
        for name in ("date", "datetime", "time", "timedelta", "timezone"):
            if f"datetime.{name}(" in repr(value) or f"datetime.{name}." in repr(value):
                self.add("datetime", name)
        return repr(value).replace("datetime.", "")

    def _repr(self, value: Any) -> str:
        self.add(type(value).__module__, type(value).__name__)
        return repr(value)


_WRITERS: dict[type, Callable[[Source, Any], str]] = {
    list: lambda source, value: f"[{source._several(value)}]",
    tuple: Source._tuple,
    dict: Source._dict,
    types.MappingProxyType: Source._dict,
    set: Source._set,
    frozenset: Source._set,
    timedelta: Source._timedelta,
    datetime: Source._of_datetime,
    date: Source._of_datetime,
    time: Source._of_datetime,
    timezone: Source._of_datetime,
    uuid.UUID: Source._repr,
    Decimal: Source._repr,
}


def _double_quoted(text: str) -> str:
    if text[-1] != "'" or '"' in text or "\\'" in text:
        return text
    return text.replace("'", '"')


def _fields(value: Any) -> dict[str, Any] | None:
    """What a value of a class with fields was made of; None: it is another one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    kind = type(value)
    # msgspec's structs, pydantic's models, named tuples, and rows of a table.
    for attribute in ("__struct_fields__", "model_fields", "_fields"):
        names = getattr(kind, attribute, None)
        if names is not None:
            return {name: getattr(value, name) for name in names}
    inbox = getattr(kind, "__inbox__", None)
    if inbox is not None:
        return {name: vars(value)[name] for name in inbox.fields if name in vars(value)}
    return None


def _rank(module: str) -> int:
    """The standard library, then others, with nothing between the two that a formatter would not add."""
    return 0 if module.partition(".")[0] in sys.stdlib_module_names else 1


def _lookup(module: str, path: str) -> Any:

    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
