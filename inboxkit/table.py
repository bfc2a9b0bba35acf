"""`Inbox`: a table of the service, described by a class whose instances are its rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    ParamSpec,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from inboxkit import role
from inboxkit._core.class_fields import Declared, declare
from inboxkit._core.printing import shorten
from inboxkit._core.roles import AUTOMATIC, MISSING, Missing, Role
from inboxkit._core.rows import (
    NewRow,
    check_names,
    completed,
    encode_payload,
    missing_columns,
    with_defaults,
)
from inboxkit._core.spec import InboxSpec, PayloadCodec
from inboxkit._core.stored import RowMapping, split_readable
from inboxkit.errors import DecodeError

__all__ = ["Inbox", "InboxSpec", "NewRow", "new_row", "row_from"]

P = ParamSpec("P")
RowT = TypeVar("RowT")
InboxT = TypeVar("InboxT", bound="Inbox")


class _Spec:
    """`Row.spec`: made once, at the class's definition or, where a type was not known yet, later."""

    def __get__(self, row: Any, owner: type[Inbox]) -> InboxSpec:
        return owner.__inbox__.spec(owner)


@dataclass_transform(
    kw_only_default=True,
    eq_default=False,
    field_specifiers=(
        role.id,
        role.group,
        role.priority,
        role.partition_key,
        role.retry_after,
        role.attempt,
        role.processed_at,
        role.locked_until,
        role.headers,
        role.payload,
        role.column,
    ),
)
class Inbox:  # noqa: PLW1641 - rows may be changed, so they have no hash
    """Base of the classes that describe inbox tables.

    ``class RenderReport(Inbox, table="report_jobs")``: a keyword-only dataclass whose fields are the
    table's columns, each set to a function of `role`, or to nothing (the service's own data).

    A subclass without ``table`` is a mixin: its fields, schema, advisory_lock and codec are inherited
    and may be given again. A table's class may be derived from for another table with the same columns.

    Args:
        table: The table's name.
        schema: Its schema; None: what the connection's search path finds.
        advisory_lock: The advisory lock form: literal text and field names, ``"jobs-{id}"``.
        codec: Encodes messages; None: JSON by msgspec.

    Raises:
        DeclarationError: At the class's definition; names the table, the field and the cure.
    """

    __slots__ = ("__dict__", "__weakref__", "_unreadable")

    __inbox__: ClassVar[Declared] = Declared({}, {})
    _unreadable: Mapping[str, DecodeError]

    spec: ClassVar[_Spec] = _Spec()
    """The frozen description that all SQL is made from."""

    def __init_subclass__(
        cls,
        *,
        table: str | Missing = MISSING,
        schema: str | Missing | None = MISSING,
        advisory_lock: str | Missing | None = MISSING,
        codec: PayloadCodec | Missing | None = MISSING,
    ) -> None:
        super().__init_subclass__()
        given: dict[str, Any] = {
            "table": table,
            "schema": schema,
            "advisory_lock": advisory_lock,
            "codec": codec,
        }
        given = {name: value for name, value in given.items() if value is not MISSING}
        cls.__inbox__ = declare(cls, Inbox, given, sys._getframe(1).f_locals)

    @classmethod
    def of(cls: Callable[P, RowT], message: Any, /, *args: P.args, **columns: P.kwargs) -> RowT:
        """Encode a message into a row.

        Args:
            message: What handlers get.
            args: None; there for type checkers.
            columns: The other columns, as `__init__` takes them.

        Raises:
            TypeError: An unknown or missing column, or a table without payload.
            EncodeError: The codec refused the message.
        """
        kind = cast("type[Inbox]", cls)
        spec = kind.spec
        if spec.payload is None:
            raise TypeError(
                f"table {spec.name!r} has no payload, its rows are their own message: "
                f"{kind.__name__}(…)"
            )
        check_names(spec, columns, what=f"{kind.__name__}.of()")
        try:
            row = cls(*args, **columns)
        except TypeError as error:
            if not (missing := missing_columns(spec, columns)):
                raise
            raise TypeError(
                f"{kind.__name__}.of() needs a value for {' and '.join(missing)}"
            ) from error
        vars(row)[spec.field_of(spec.payload)] = encode_payload(spec, message)
        return row

    @classmethod
    def stored(cls: type[InboxT], /, **columns: Any) -> InboxT:
        """Make a row as the database might hold it, for tests and fixtures.

        Args:
            columns: Any of them, those too that the database or inboxkit fills; values are not
                checked. Others have their default, a new row's attempt is 1 and its times None; what
                is left cannot be read.

        Raises:
            TypeError: An unknown column.
        """
        spec = cls.spec
        for name in columns:
            if name not in spec.names:
                check_names(spec, [name], what=f"{cls.__name__}.stored()")
        row = object.__new__(cls)
        for name, column in spec.names.items():
            kind = spec.role_of(column)
            if name in columns:
                vars(row)[name] = columns[name]
            elif column.has_default:
                vars(row)[name] = column.make_default()
            elif kind in AUTOMATIC:
                vars(row)[name] = AUTOMATIC[kind]
        return row

    if not TYPE_CHECKING:  # it would make every misspelt attribute right

        def __getattr__(self, name: str) -> Any:
            if name != "_unreadable" and name in type(self).__inbox__.fields:
                raise _unset(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return vars(self) == vars(other)

    def __repr__(self) -> str:
        values = vars(self)
        shown = [
            f"{name}={shorten(values[name])}" for name in self.__inbox__.fields if name in values
        ]
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _unset(row: Inbox, name: str) -> Exception:
    unreadable = getattr(row, "_unreadable", None)
    if unreadable and name in unreadable:
        return cast("DecodeError", unreadable[name]).with_traceback(None)
    kind = type(row)
    specifier = kind.__inbox__.fields[name].specifier
    if unreadable is not None:
        return AttributeError(
            f"{kind.__name__}.{name} was not read from the database with this row"
        )
    if specifier.role is Role.PAYLOAD:
        return AttributeError(
            f"{kind.__name__}.{name} is the encoded message; make the row by {kind.__name__}.of(message)"
        )
    return AttributeError(
        f"{kind.__name__}.{name} is not known: this row was not read from the database (not inserted "
        f"yet); insert_rows and publish return its id"
    )


def new_row(row: Inbox | NewRow) -> NewRow:
    """Return what is to be inserted for a row.

    Defaults are applied. Columns that the database fills are left out, unless `Row.stored` was given
    a value. A row that was read from the database is inserted anew: without what the database
    or inboxkit filled.

    Raises:
        TypeError: It is no row, or a column has neither a value nor a default.
        DecodeError: A row that was read has a value that could not be.
    """
    if isinstance(row, NewRow):
        return row
    if not isinstance(row, Inbox):
        raise TypeError(
            f"expected a row, made by Row.of(message), Row(…) or spec.of(message), not "
            f"{type(row).__qualname__}"
        )
    spec = row.spec
    unreadable = getattr(row, "_unreadable", None)
    if unreadable is None:
        return NewRow(spec, completed(spec, vars(row)))
    own = {
        name: column
        for name, column in spec.names.items()
        if not (column.generated or spec.role_of(column) in AUTOMATIC)
    }
    for name, error in unreadable.items():
        if name in own:
            raise error.with_traceback(None)
    values = {column.name: vars(row)[name] for name, column in own.items() if name in vars(row)}
    return NewRow(spec, with_defaults(spec, values))


@overload
def row_from(row_type: type[InboxT], values: Mapping[str, Any]) -> InboxT: ...
@overload
def row_from(row_type: InboxSpec, values: Mapping[str, Any]) -> Mapping[str, Any]: ...
def row_from(row_type: Any, values: Mapping[str, Any]) -> Any:
    """Return a row as it was read from the database.

    Args:
        row_type: Its class, or the description of a table that has none.
        values: By column name. A DecodeError among them is raised when its field is read.
    """
    if isinstance(row_type, InboxSpec):
        return RowMapping(row_type, values)
    row = object.__new__(row_type)
    readable, unreadable = split_readable(row_type.spec, values)
    vars(row).update(readable)
    row._unreadable = unreadable
    return row
