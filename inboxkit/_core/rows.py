"""A row that is to be inserted: its description and the values that the caller gave."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from inboxkit.errors import EncodeError

from .json_codec import JSON
from .printing import shorten
from .roles import AUTOMATIC, MISSING, Column, Role

if TYPE_CHECKING:
    from .spec import InboxSpec

__all__ = [
    "NewRow",
    "RowPlan",
    "check_names",
    "completed",
    "compose",
    "encode_payload",
    "missing_columns",
    "plan_of",
    "with_defaults",
]


@dataclass(frozen=True, slots=True)
class NewRow:
    """What `insert_rows` and `publish` write: made by `Row.of` (through its class) or `InboxSpec.of`."""

    spec: InboxSpec
    values: Mapping[str, Any]
    """By column name, as Python values, defaults applied. Columns left out are the database's."""

    def __repr__(self) -> str:
        shown = "".join(f", {name}={shorten(value)}" for name, value in self.values.items())
        return f"NewRow({self.spec.name!r}{shown})"


_Fill: TypeAlias = tuple[str, str, bool, Any, Callable[[], Any] | None]
"""By which name a value is given, the column's own, whether it is left out without one, and what it then
is: a value, or what a function makes."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What is asked of a description for each new row, found once."""

    by_column: tuple[_Fill, ...]
    """Every column, in order, given by its own name."""
    by_field: tuple[_Fill, ...]
    """The same, given by the name that Python code uses."""
    givable: frozenset[str]
    """Names, as Python code uses them, of what a caller may give beside a message."""


def plan_of(spec: InboxSpec) -> RowPlan:
    """Make it."""
    by_column = tuple(_fill(role, column) for role, column in spec.roles())
    by_field = tuple(
        (spec.field_of(column), *fill[1:])
        for (_role, column), fill in zip(spec.roles(), by_column, strict=True)
    )
    kept_back = {Role.PAYLOAD, *AUTOMATIC}
    givable = {
        name
        for name, column in spec.names.items()
        if not column.generated and spec.role_of(column) not in kept_back
    }
    return RowPlan(by_column, by_field, frozenset(givable))


def _fill(role: Role, column: Column) -> _Fill:
    value = column.default
    if value is MISSING and column.default_factory is None and role in AUTOMATIC:
        value = AUTOMATIC[role]
    return column.name, column.name, column.generated, value, column.default_factory


def compose(spec: InboxSpec, message: Any, columns: Mapping[str, Any]) -> NewRow:
    """Make a row of a message and the values of its other columns.

    Args:
        spec: The table.
        message: What the payload is made from; MISSING on a table without payload.
        columns: By the names that Python code uses.

    Raises:
        TypeError: A column that the table has not, one that is not the caller's to give, or one
            without a value; a message where there is no payload, or none where there is one.
        EncodeError: The codec refused the message.
    """
    check_names(spec, columns)
    values = {spec.names[name].name: value for name, value in columns.items()}
    if spec.payload is None and message is not MISSING:
        raise TypeError(
            f"table {spec.name!r} has no payload column, its rows are their own message; "
            f"give the columns only"
        )
    if spec.payload is not None:
        if message is MISSING:
            raise TypeError(f"table {spec.name!r} has a payload column; the message is missing")
        values[spec.payload.name] = encode_payload(spec, message)
    return NewRow(spec, with_defaults(spec, values))


def check_names(spec: InboxSpec, given: Collection[str], *, what: str = "of()") -> None:
    """Refuse names that a new row of this table cannot be given.

    Raises:
        TypeError: The first of them, with what the caller may have meant.
    """
    if spec.plan.givable.issuperset(given):
        return
    for name in given:
        column = spec.names.get(name)
        if column is None:
            raise TypeError(
                f"{what}: table {spec.name!r} has no column {name!r}{_meant(spec, name)}"
            )
        role = spec.role_of(column)
        if role is Role.PAYLOAD:
            raise TypeError(
                f"{what}: column {name!r} is the encoded message; give the message first"
            )
        if column.generated or role in AUTOMATIC:
            filled = "the database" if column.generated else "inboxkit"
            raise TypeError(
                f"{what}: column {name!r} of table {spec.name!r} is filled by {filled}; leave it out"
            )


def _meant(spec: InboxSpec, name: str) -> str:
    close = difflib.get_close_matches(name, spec.names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has {', '.join(map(repr, spec.names))}"


def encode_payload(spec: InboxSpec, message: Any) -> bytes | str:
    """Encode a message as the table's payload column takes it.

    Raises:
        EncodeError: With the table's name and the place in the message.
    """
    codec = spec.codec if spec.codec is not None else JSON
    try:
        payload: Any = codec.encode(message)
    except EncodeError as error:
        raise EncodeError(
            f"table {spec.name!r}: {error}", table=spec.name, where=error.where
        ) from error.__cause__
    except Exception as error:
        raise EncodeError(
            f"table {spec.name!r}: {type(codec).__name__} could not encode a message of type "
            f"{type(message).__qualname__}: {type(error).__name__}",
            table=spec.name,
            where="$",
        ) from error
    if not isinstance(payload, bytes):
        raise EncodeError(
            f"table {spec.name!r}: {type(codec).__name__}.encode must return bytes, not "
            f"{type(payload).__qualname__}",
            table=spec.name,
            where="$",
        )
    return _as_text(spec, payload) if spec.payload and spec.payload.type is str else payload


def _as_text(spec: InboxSpec, payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise EncodeError(
            f"table {spec.name!r}: the payload column is declared str, and the encoded message is not "
            f"UTF-8 at byte {error.start}; declare the column bytes",
            table=spec.name,
            where="$",
        ) from None


def with_defaults(spec: InboxSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the values of a row that is to be inserted, in the table's order of columns.

    Args:
        spec: The table.
        values: What is known, by column name.

    Raises:
        TypeError: A column has neither a value nor a default.
    """
    return _completed(spec, values, spec.plan.by_column)


def completed(spec: InboxSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same of values by the names that Python code uses; others are left out."""
    return _completed(spec, values, spec.plan.by_field)


def _completed(
    spec: InboxSpec, values: Mapping[str, Any], fills: Iterable[_Fill]
) -> dict[str, Any]:
    complete: dict[str, Any] = {}
    missing: list[str] = []
    for given, name, is_left_out, value, factory in fills:
        if given in values:
            complete[name] = values[given]
        elif is_left_out:
            continue
        elif factory is not None:
            complete[name] = factory()
        elif value is not MISSING:
            complete[name] = value
        else:
            missing.append(name)
    if missing:
        needs = [_describe(spec, *pair) for pair in spec.roles() if pair[1].name in missing]
        raise TypeError(f"a row of table {spec.name!r} needs a value for {' and '.join(needs)}")
    return complete


def missing_columns(spec: InboxSpec, given: Iterable[str]) -> list[str]:
    """What a row that is made by these names still needs, with the cure where there is one."""
    names = set(given)
    return [
        _describe(spec, role, column)
        for role, column in spec.roles()
        if role not in AUTOMATIC
        and role is not Role.PAYLOAD
        and not (column.generated or column.has_default or spec.field_of(column) in names)
    ]


def _describe(spec: InboxSpec, role: Role, column: Column) -> str:
    name = spec.field_of(column)
    if role is Role.PAYLOAD:
        return f"{name!r} (the message: make the row by of(message, …))"
    if role is Role.RETRY_AFTER:
        return f"{name!r} (declare it with default=None, and rows that are given none are due now)"
    if role is Role.DATA:
        return repr(name)
    return f"{name!r} (give it, or declare role {role.value} with a default)"
