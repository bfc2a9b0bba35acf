"""A user's Python values as the drivers take them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from inboxkit.abc import DialectName
from inboxkit.errors import EncodeError

__all__ = ["encode_parameters"]


def encode_parameters(dialect: DialectName, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
    """Encode the arguments of one statement.

    Raises:
        EncodeError: One has a type that this database does not take, or is a naive datetime; the
            message names its placeholder.
    """
    encode = _encoders[dialect]
    return tuple(
        value if type(value) in _plain else encode(value, f"${number}")
        for number, value in enumerate(parameters, 1)
    )


def _for_postgres(value: Any, where: str) -> Any:
    if isinstance(value, datetime):
        _check_aware(value, where)
    return value


def _for_sqlite(value: Any, where: str) -> Any:
    match value:
        case datetime():
            _check_aware(value, where)
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case bool():
            return int(value)
        case int() | float() | str():
            return value
        case bytearray() | memoryview():
            return bytes(value)
    raise EncodeError(
        f"{where}: SQLite cannot hold a {type(value).__name__}; give int, float, str, bytes, bool, "
        "None, an aware datetime, date, UUID or Decimal",
        where=where,
    )


def _for_mysql(value: Any, where: str) -> Any:
    match value:
        case datetime():
            _check_aware(value, where)
            return value
        case bool() | int() | float() | str() | date() | Decimal():
            return value
        case UUID():
            return str(value)
        case bytearray() | memoryview():
            return bytes(value)
    raise EncodeError(
        f"{where}: MariaDB and MySQL cannot hold a {type(value).__name__}; give int, float, str, "
        "bytes, bool, None, an aware datetime, date, UUID or Decimal",
        where=where,
    )


def _check_aware(value: datetime, where: str) -> None:
    if value.utcoffset() is None:
        raise EncodeError(
            f"{where}: a naive datetime means another instant on every host; give an aware one, "
            "such as clock.now() or datetime(…, tzinfo=UTC)",
            where=where,
        )


_plain: Final = frozenset({int, float, str, bytes, type(None)})
_encoders: Final[dict[DialectName, Callable[[Any, str], Any]]] = {
    "mysql": _for_mysql,
    "postgres": _for_postgres,
    "sqlite": _for_sqlite,
}
