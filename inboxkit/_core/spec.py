"""The description of a table that all SQL is made from."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from inboxkit.errors import DeclarationError

from .annotations import show
from .lock_key import KeyField, parse_key
from .roles import AUTOMATIC, MISSING, Column, Role, type_error
from .rows import NewRow, RowPlan, compose, plan_of

__all__ = ["MISSING", "ClaimFormName", "Column", "InboxSpec", "PayloadCodec", "Role"]

ClaimFormName = Literal["row lock", "lease", "advisory lock"]


class PayloadCodec(Protocol):
    """Turns messages into bytes and back; `inboxkit.codec.JSON` is the default."""

    def encode(self, message: Any, /) -> bytes:
        """Return the payload of `message`; raise EncodeError naming the place that does not fit."""
        ...

    def decode(self, payload: bytes, type: Any, /) -> Any:
        """Return the message in `payload`; raise DecodeError naming the place that does not fit."""
        ...


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

    Attributes:
        names: Every column by the name that Python code uses for it, in order.

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
    names: Mapping[str, Column] = field(init=False, repr=False, compare=False)
    _described: tuple[tuple[Role, Column], ...] = field(init=False, repr=False, compare=False)
    _roles: Mapping[str, Role] = field(init=False, repr=False, compare=False)
    _fields: Mapping[str, str] = field(init=False, repr=False, compare=False)
    plan: RowPlan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "fields", types.MappingProxyType(dict(self.fields)))
        found = [(role, getattr(self, attribute)) for attribute, role in _ROLE_FIELDS]
        described = [pair for pair in found if pair[1] is not None]
        described += [(Role.DATA, column) for column in self.columns]
        object.__setattr__(self, "_described", tuple(described))
        fields = {name: python for python, name in reversed(tuple(self.fields.items()))}
        object.__setattr__(self, "_fields", fields)
        _check(self)
        object.__setattr__(self, "_roles", {column.name: role for role, column in described})
        names = {self.field_of(column): column for _role, column in described}
        object.__setattr__(self, "names", types.MappingProxyType(names))
        _check_names(self)
        object.__setattr__(self, "plan", plan_of(self))

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

    def of(self, message: Any = MISSING, /, **columns: Any) -> NewRow:
        """Encode a message into a row, for `insert_rows` and `publish`.

        Args:
            message: What handlers get; left out on a table without payload.
            columns: Values of the other columns, by the names that Python code uses. Those with a
                default, and those that the database or inboxkit fills, are left out.

        Raises:
            TypeError: An unknown, a missing or a forbidden column; the message names it.
            EncodeError: The codec refused the message.
        """
        return compose(self, message, columns)

    def roles(self) -> Iterator[tuple[Role, Column]]:
        """Every described column with its role, data columns last."""
        return iter(self._described)

    def column_of(self, name: str) -> tuple[Role, Column] | None:
        """Find a column by the name that Python code uses for it, or by its own."""
        wanted = self.fields.get(name, name)
        return next((pair for pair in self.roles() if pair[1].name == wanted), None)

    def role_of(self, column: Column) -> Role:
        """The role of one of this table's columns."""
        return self._roles[column.name]

    def field_of(self, column: Column) -> str:
        """The name that Python code uses for `column`."""
        return self._fields.get(column.name, column.name)


def _check(spec: InboxSpec) -> None:
    _check_table(spec)
    _check_columns(spec)
    _check_form(spec)
    if spec.advisory_lock is not None:
        _check_key(spec, spec.advisory_lock)


def _check_table(spec: InboxSpec) -> None:
    if not isinstance(spec.table, str) or not spec.table:
        raise DeclarationError(f"table must be a non-empty name, not {spec.table!r}")
    if spec.schema is not None and (not isinstance(spec.schema, str) or not spec.schema):
        raise DeclarationError(
            f"table {spec.table!r}: schema must be a non-empty name, not {spec.schema!r}; leave it out "
            f"to use the search path"
        )
    if "\0" in spec.name:
        raise DeclarationError(f"table {spec.name!r}: no database takes NUL in a name")
    if not isinstance(spec.id, Column):
        raise DeclarationError(
            f"table {spec.name!r} needs an id column: InboxSpec(…, id=Column('id', generated=True))"
        )


def _check_columns(spec: InboxSpec) -> None:
    seen: set[str] = set()
    for role, column in spec.roles():
        if not isinstance(column, Column):
            raise DeclarationError(
                f"table {spec.name!r}: {role.value} must be a Column, not {column!r}; write "
                f"Column({column!r})"
            )
        if column.name in seen:
            raise DeclarationError(
                f"table {spec.name!r} describes column {column.name!r} twice; each column once"
            )
        seen.add(column.name)
        _check_column(spec, role, column)


def _check_column(spec: InboxSpec, role: Role, column: Column) -> None:
    if column.type is not None and (allowed := type_error(role, column.type, nullable=False)):
        raise DeclarationError(
            f"table {spec.name!r}: column {column.name!r} has the role {role.value} and the type "
            f"{show(column.type)}; {role.value} is {allowed}"
        )
    if role in AUTOMATIC and column.has_default:
        default = None if column.default is MISSING else column.default
        if column.default_factory is not None or default != AUTOMATIC[role]:
            raise DeclarationError(
                f"table {spec.name!r}: a new row's {role.value} is always {AUTOMATIC[role]!r}; drop the "
                f"default of column {column.name!r}"
            )
    if role is Role.PAYLOAD and (column.generated or column.has_default):
        raise DeclarationError(
            f"table {spec.name!r}: the payload {column.name!r} is the encoded message; it is neither "
            f"generated nor has it a default"
        )


def _check_form(spec: InboxSpec) -> None:
    if spec.fifo and spec.group is None:
        raise DeclarationError(f"table {spec.name!r}: fifo needs a group column")
    if spec.locked_until is not None and spec.advisory_lock is not None:
        raise DeclarationError(
            f"table {spec.name!r} asks for two claim forms; drop the column "
            f"{spec.field_of(spec.locked_until)!r} (locked_until: a lease) or advisory_lock"
        )
    if spec.fifo and spec.advisory_lock is not None and spec.group is not None:
        raise DeclarationError(
            f"table {spec.name!r}: fifo does not go with advisory_lock; put the group into the key, "
            f"such as advisory_lock='{spec.table}-{{{spec.field_of(spec.group)}}}', and drop fifo"
        )


_MOVING: Final = frozenset({Role.ATTEMPT, Role.RETRY_AFTER, Role.PROCESSED_AT})


def _check_key(spec: InboxSpec, key: str) -> None:
    if not isinstance(key, str) or not key:
        raise DeclarationError(
            f"table {spec.name!r}: advisory_lock must be a non-empty str such as "
            f"'{spec.table}-{{{spec.field_of(spec.id)}}}', not {key!r}"
        )
    if "\0" in key or key != key.encode(errors="ignore").decode():
        raise DeclarationError(
            f"table {spec.name!r}: advisory_lock {key!r} has NUL or a lone surrogate in it, which no "
            "database takes for text; leave it out"
        )
    try:
        parts = parse_key(key)
    except ValueError as error:
        raise DeclarationError(
            f"table {spec.name!r}: advisory_lock {key!r}: {error}; write a field's name between braces, "
            f"and {{{{ or }}}} for a brace itself"
        ) from None
    for part in parts:
        if isinstance(part, KeyField):
            _check_key_field(spec, key, part.name)


def _check_key_field(spec: InboxSpec, key: str, name: str) -> None:
    found = spec.column_of(name)
    if found is None:
        names = ", ".join(spec.field_of(column) for _role, column in spec.roles())
        raise DeclarationError(
            f"table {spec.name!r}: advisory_lock {key!r} names {name!r}, which is no field of the "
            f"table; it has {names}"
        )
    if found[0] in _MOVING:
        # A claim or a settlement writes it, and with it the key: two services would lock two keys
        # for one row.
        raise DeclarationError(
            f"table {spec.name!r}: advisory_lock {key!r} names {name!r}, which changes while the row is "
            f"in work; use fields that never change, such as '{spec.field_of(spec.id)}'"
        )


def _check_names(spec: InboxSpec) -> None:
    described = {column.name for _role, column in spec.roles()}
    for python, name in spec.fields.items():
        if name not in described:
            raise DeclarationError(
                f"table {spec.name!r}: field {python!r} names column {name!r}, which is not described"
            )
    if len(spec.names) < len(described):
        raise DeclarationError(
            f"table {spec.name!r}: two columns go by one name in fields {dict(spec.fields)!r}"
        )
