"""Roles of columns: what the fields of an `Inbox` class are set to.

Each function takes the column's name first (None: the field's name) and tells type checkers the type
that the field must have. `generated=True` means that the database fills the column: inserts leave it
out, and so does the class's `__init__`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload
from uuid import UUID

from inboxkit._core.declaration import Specifier
from inboxkit._core.roles import MISSING, Missing, Role

__all__ = [
    "attempt",
    "column",
    "group",
    "headers",
    "id",
    "locked_until",
    "partition_key",
    "payload",
    "priority",
    "processed_at",
    "retry_after",
]

_T = TypeVar("_T")
_IdT = TypeVar("_IdT", bound=int | str | UUID)
_KeyT = TypeVar("_KeyT", bound=str | int | UUID | bytes)

if TYPE_CHECKING:
    # A function's type cannot say "any of these, as the field is annotated". A class that is all of
    # them at once can be assigned to a field of each and to no other: nothing else comes near it, and
    # there is no value of it.
    class IdValue(int, str, UUID): ...  # type: ignore[misc]

    class KeyValue(int, str, UUID, bytes): ...  # type: ignore[misc]

    class PayloadValue(bytes, str): ...  # type: ignore[misc]

else:
    IdValue = int | str | UUID
    KeyValue = int | str | UUID | bytes
    PayloadValue = bytes | str


def _specify(role: Role, name: str | None, init: Any = None, **given: Any) -> Any:  # noqa: ARG001
    # `init` is there for type checkers alone.
    return Specifier(role, name, **given)


@overload
def id(name: str | None = None) -> IdValue: ...
@overload
def id(name: str | None = None, *, default: _IdT) -> _IdT: ...
@overload
def id(name: str | None = None, *, default_factory: Callable[[], _IdT]) -> _IdT: ...
@overload
def id(
    name: str | None = None, *, generated: Literal[True], init: Literal[False] = False
) -> IdValue: ...
def id(name: str | None = None, **given: Any) -> Any:
    """The row's identity, and the last key of the claim order: int, str or UUID. Required."""
    return _specify(Role.ID, name, **given)


@overload
def group(name: str | None = None, *, fifo: bool = False) -> str: ...
@overload
def group(name: str | None = None, *, fifo: bool = False, default: str) -> str: ...
@overload
def group(
    name: str | None = None, *, fifo: bool = False, default_factory: Callable[[], str]
) -> str: ...
@overload
def group(
    name: str | None = None,
    *,
    fifo: bool = False,
    generated: Literal[True],
    init: Literal[False] = False,
) -> str: ...
def group(name: str | None = None, **given: Any) -> Any:
    """The queue that a row belongs to, one table holding many.

    Args:
        name: The column's name.
        fifo: One row of a group in work at a time, in claim order.
        default: What an insert writes where the caller gives no value.
        default_factory: The same, called for each row.
        generated: The database fills it.
        init: For type checkers; not to be given.
    """
    return _specify(Role.GROUP, name, **given)


@overload
def priority(name: str | None = None) -> int: ...
@overload
def priority(name: str | None = None, *, default: int | None) -> int: ...
@overload
def priority(name: str | None = None, *, default_factory: Callable[[], int]) -> int: ...
@overload
def priority(
    name: str | None = None, *, generated: Literal[True], init: Literal[False] = False
) -> int: ...
def priority(name: str | None = None, **given: Any) -> Any:
    """Smaller is claimed first; NULL before all."""
    return _specify(Role.PRIORITY, name, **given)


@overload
def partition_key(name: str | None = None) -> KeyValue: ...
@overload
def partition_key(name: str | None = None, *, default: _KeyT) -> _KeyT: ...
@overload
def partition_key(name: str | None = None, *, default_factory: Callable[[], _KeyT]) -> _KeyT: ...
@overload
def partition_key(
    name: str | None = None, *, generated: Literal[True], init: Literal[False] = False
) -> KeyValue: ...
def partition_key(name: str | None = None, **given: Any) -> Any:
    """Rows of one key go to one worker, under ``workers_by_key``: str, int, UUID or bytes."""
    return _specify(Role.PARTITION_KEY, name, **given)


@overload
def retry_after(name: str | None = None) -> datetime | None: ...
@overload
def retry_after(name: str | None = None, *, default: datetime | None) -> datetime | None: ...
@overload
def retry_after(
    name: str | None = None, *, default_factory: Callable[[], datetime | None]
) -> datetime | None: ...
@overload
def retry_after(
    name: str | None = None, *, generated: Literal[True], init: Literal[False] = False
) -> datetime | None: ...
def retry_after(name: str | None = None, **given: Any) -> Any:
    """The instant before which the row is not due; None is due now. Later delivery and back-off."""
    return _specify(Role.RETRY_AFTER, name, **given)


def attempt(
    name: str | None = None,
    *,
    generated: bool = False,
    default: Literal[1] | Missing = MISSING,
    init: Literal[False] = False,  # noqa: ARG001
) -> int:
    """The delivery's number, 1 in a new row; makes caps possible. Never given by the caller."""
    specifier: Any = _specify(Role.ATTEMPT, name, generated=generated, default=default)
    return specifier  # type: ignore[no-any-return]


def processed_at(
    name: str | None = None,
    *,
    generated: bool = False,
    default: Missing | None = MISSING,
    init: Literal[False] = False,  # noqa: ARG001
) -> datetime | None:
    """Finished rows stay and are stamped with the instant. Never given by the caller."""
    specifier: Any = _specify(Role.PROCESSED_AT, name, generated=generated, default=default)
    return specifier  # type: ignore[no-any-return]


def locked_until(
    name: str | None = None,
    *,
    generated: bool = False,
    default: Missing | None = MISSING,
    init: Literal[False] = False,  # noqa: ARG001
) -> datetime | None:
    """The end of the lease that holds the row; makes the table's claim form the lease."""
    specifier: Any = _specify(Role.LOCKED_UNTIL, name, generated=generated, default=default)
    return specifier  # type: ignore[no-any-return]


@overload
def headers(name: str | None = None) -> dict[str, str]: ...
@overload
def headers(name: str | None = None, *, default: None) -> Any: ...
@overload
def headers(
    name: str | None = None, *, default_factory: Callable[[], dict[str, str]]
) -> dict[str, str]: ...
@overload
def headers(
    name: str | None = None, *, generated: Literal[True], init: Literal[False] = False
) -> dict[str, str]: ...
def headers(name: str | None = None, **given: Any) -> Any:
    """Strings that travel beside the message, in a text, JSON or JSONB column."""
    return _specify(Role.HEADERS, name, **given)


def payload(name: str | None = None, *, init: Literal[False] = False) -> PayloadValue:  # noqa: ARG001
    """The encoded message, bytes or str: `Row.of` fills it. Without it a handler takes the row itself."""
    specifier: Any = _specify(Role.PAYLOAD, name)
    return specifier  # type: ignore[no-any-return]


@overload
def column(name: str | None = None) -> Any: ...
@overload
def column(name: str | None = None, *, default: _T) -> _T: ...
@overload
def column(name: str | None = None, *, default_factory: Callable[[], _T]) -> _T: ...
@overload
def column(
    name: str | None = None, *, generated: Literal[True], init: Literal[False] = False
) -> Any: ...
def column(name: str | None = None, **given: Any) -> Any:
    """A column of the service's own; a field that is set to nothing is one too."""
    return _specify(Role.DATA, name, **given)
