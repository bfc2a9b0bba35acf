"""The description of a table that all SQL is made from."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from inboxkit.errors import DeclarationError

__all__ = ["MISSING", "ClaimFormName", "Column", "InboxSpec", "PayloadCodec", "Role"]

ClaimFormName = Literal["row lock", "lease", "advisory lock"]


class _Missing(enum.Enum):
    MISSING = "MISSING"


MISSING: Final = _Missing.MISSING
"""No value was given (None is a value)."""


class Role(enum.Enum):
    """What a column is for."""

    ID = "id"
    GROUP = "group"
    PRIORITY = "priority"
    PARTITION_KEY = "partition_key"
    RETRY_AFTER = "retry_after"
    ATTEMPT = "attempt"
    PROCESSED_AT = "processed_at"
    LOCKED_UNTIL = "locked_until"
    HEADERS = "headers"
    PAYLOAD = "payload"
    DATA = "column"


class PayloadCodec(Protocol):
    """Turns messages into bytes and back; `inboxkit.codec.JSON` is the default."""

    def encode(self, message: Any, /) -> bytes:
        """Return the payload of `message`; raise EncodeError naming the place that does not fit."""
        ...

    def decode(self, payload: bytes, type: Any, /) -> Any:
        """Return the message in `payload`; raise DecodeError naming the place that does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an inbox table.

    Args:
        name: The column's name, in any spelling that the database takes when quoted.
        generated: The database fills it; inserts leave it out.
        default: What an insert writes where the caller gives no value.
        default_factory: The same, called for each row.
        type: The Python type of its values (`int`, `UUID`, `bytes`, …); None: whatever the
            column's role allows and the database's type gives.
    """

    name: str
    generated: bool = False
    default: Any = MISSING
    default_factory: Callable[[], Any] | None = None
    type: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DeclarationError(f"a column's name must be a non-empty str, not {self.name!r}")
        if "\0" in self.name:
            raise DeclarationError(f"column {self.name!r}: no database takes NUL in a name")
        if self.default is not MISSING and self.default_factory is not None:
            raise DeclarationError(
                f"column {self.name!r} has both default and default_factory; give one"
            )


_ROLE_FIELDS: Final = (
    ("id", Role.ID),
    ("group", Role.GROUP),
    ("priority", Role.PRIORITY),
    ("partition_key", Role.PARTITION_KEY),
    ("retry_after", Role.RETRY_AFTER),
    ("attempt", Role.ATTEMPT),
    ("processed_at", Role.PROCESSED_AT),
    ("locked_until", Role.LOCKED_UNTIL),
    ("headers", Role.HEADERS),
    ("payload", Role.PAYLOAD),
)


@dataclass(frozen=True, slots=True)
class InboxSpec:
    """A table, and which of its columns plays which role.

    Args:
        table: The table's name.
        schema: Its schema; None: what the connection's search path finds.
        id: Identity, and last key of the claim order. The one required role.
        group: Queues by name inside one table.
        fifo: One row of a group in work at a time, in claim order; needs `group`.
        priority: Smaller is claimed first.
        partition_key: One key, one worker, under `workers_by_key`.
        retry_after: Not due before this instant; NULL is due now.
        attempt: The delivery's number, 1 in a new row.
        processed_at: Finished rows stay, stamped with this instant.
        locked_until: The lease form: who writes it holds the row until then.
        headers: A JSON object of strings.
        payload: The encoded message; without it handlers take the row itself.
        columns: The service's own columns.
        advisory_lock: The advisory lock form: literal text and column names, ``"jobs-{id}"``.
        codec: Encodes messages; None: JSON by msgspec.
        fields: Names that Python code uses for columns, where they differ from the columns' own.

    Raises:
        DeclarationError: The description contradicts itself; the message names the cure.
    """

    table: str
    schema: str | None = field(default=None, kw_only=True)
    id: Column = field(kw_only=True)
    group: Column | None = field(default=None, kw_only=True)
    fifo: bool = field(default=False, kw_only=True)
    priority: Column | None = field(default=None, kw_only=True)
    partition_key: Column | None = field(default=None, kw_only=True)
    retry_after: Column | None = field(default=None, kw_only=True)
    attempt: Column | None = field(default=None, kw_only=True)
    processed_at: Column | None = field(default=None, kw_only=True)
    locked_until: Column | None = field(default=None, kw_only=True)
    headers: Column | None = field(default=None, kw_only=True)
    payload: Column | None = field(default=None, kw_only=True)
    columns: tuple[Column, ...] = field(default=(), kw_only=True)
    advisory_lock: str | None = field(default=None, kw_only=True)
    codec: PayloadCodec | None = field(default=None, kw_only=True)
    fields: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def name(self) -> str:
        """``schema.table``, or the table alone: for messages and for routing."""
        return f"{self.schema}.{self.table}" if self.schema is not None else self.table

    @property
    def form(self) -> ClaimFormName:
        """The claim form that this description asks for."""
        if self.locked_until is not None:
            return "lease"
        return "advisory lock" if self.advisory_lock is not None else "row lock"

    def roles(self) -> Iterator[tuple[Role, Column]]:
        """Every described column with its role, data columns last."""
        for attribute, role in _ROLE_FIELDS:
            column = getattr(self, attribute)
            if column is not None:
                yield role, column
        for column in self.columns:
            yield Role.DATA, column

    def column_of(self, name: str) -> tuple[Role, Column] | None:
        """Find a column by the name that Python code uses for it."""
        wanted = self.fields.get(name, name)
        return next(
            ((role, column) for role, column in self.roles() if column.name == wanted), None
        )

    def field_of(self, column: Column) -> str:
        """The name that Python code uses for `column`."""
        return next(
            (python for python, name in self.fields.items() if name == column.name), column.name
        )


def _check(spec: InboxSpec) -> None:
    if not isinstance(spec.table, str) or not spec.table:
        raise DeclarationError(f"table must be a non-empty name, not {spec.table!r}")
    if spec.schema is not None and not spec.schema:
        raise DeclarationError(
            f"table {spec.table!r}: schema is empty; leave it out to use the search path"
        )
    if "\0" in spec.name:
        raise DeclarationError(f"table {spec.table!r}: no database takes NUL in a name")
    if not isinstance(spec.id, Column):
        raise DeclarationError(
            f"table {spec.name!r} needs an id column: InboxSpec(…, id=Column('id', generated=True))"
        )
    seen: set[str] = set()
    for _role, column in spec.roles():
        if column.name in seen:
            raise DeclarationError(
                f"table {spec.name!r} describes column {column.name!r} twice; each column once"
            )
        seen.add(column.name)
    if spec.fifo and spec.group is None:
        raise DeclarationError(f"table {spec.name!r}: fifo needs a group column")
    if spec.locked_until is not None and spec.advisory_lock is not None:
        raise DeclarationError(
            f"table {spec.name!r} asks for two claim forms: drop locked_until or advisory_lock"
        )
    if spec.fifo and spec.advisory_lock is not None and spec.group is not None:
        raise DeclarationError(
            f"table {spec.name!r}: fifo does not go with advisory_lock; put the group into the key, "
            f"such as advisory_lock='{spec.table}-{{{spec.field_of(spec.group)}}}', and drop fifo"
        )
    for python, name in spec.fields.items():
        if name not in seen:
            raise DeclarationError(
                f"table {spec.name!r}: field {python!r} names column {name!r}, which is not described"
            )
