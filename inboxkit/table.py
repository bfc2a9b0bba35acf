"""`Inbox`: a table of the service, described by a class whose instances are its rows."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    ParamSpec,
    TypeVar,
    cast,
    dataclass_transform,
    get_origin,
    overload,
)

from inboxkit import role
from inboxkit._core.annotations import show, try_resolve
from inboxkit._core.declaration import Field, Settings, Specifier, build_spec
from inboxkit._core.printing import shorten
from inboxkit._core.roles import AUTOMATIC, MISSING, Missing, Role
from inboxkit._core.rows import NewRow, check_names, encode_payload, with_defaults
from inboxkit._core.spec import InboxSpec, PayloadCodec
from inboxkit._core.stored import RowMapping, split_readable
from inboxkit.errors import DeclarationError, DecodeError

__all__ = ["Inbox", "InboxSpec", "NewRow", "new_row", "row_from"]

P = ParamSpec("P")
RowT = TypeVar("RowT")
InboxT = TypeVar("InboxT", bound="Inbox")


class _Declared:
    """What a class says of its table, the types of its fields resolved as far as they can be."""

    def __init__(self, fields: dict[str, Field], given: dict[str, Any]) -> None:
        self.fields = fields
        self.given = given
        self.spec: InboxSpec | None = None

    def settings(self) -> Settings | None:
        return Settings(**self.given) if "table" in self.given else None


class _Spec:
    """`Row.spec`: made once, at the class's definition or, where a type was not known yet, later."""

    def __get__(self, row: Any, owner: type[Inbox]) -> InboxSpec:
        declared = owner.__inbox__
        if declared.spec is None:
            settings = declared.settings()
            if settings is None:
                raise DeclarationError(
                    f'{owner.__qualname__} names no table: class {owner.__name__}(Inbox, table="…")'
                )
            fields = [_resolve(owner, field) for field in declared.fields.values()]
            declared.spec = build_spec(settings, fields, final=True)
        return declared.spec


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

    __inbox__: ClassVar[_Declared] = _Declared({}, {})
    _unreadable: Mapping[str, DecodeError]

    spec = _Spec()
    """The frozen description that all SQL is made from."""

    def __init_subclass__(
        cls,
        *,
        table: str | Missing = MISSING,
        schema: str | Missing | None = MISSING,
        advisory_lock: str | Missing | None = MISSING,
        codec: PayloadCodec | Missing | None = MISSING,
        **others: Any,
    ) -> None:
        super().__init_subclass__(**others)
        given = {"table": table, "schema": schema, "advisory_lock": advisory_lock, "codec": codec}
        _declare(cls, {name: value for name, value in given.items() if value is not MISSING})

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
        row = cls(*args, **columns)
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


# --- the class's definition


def _declare(cls: type[Inbox], given: dict[str, Any]) -> None:
    inherited = _inherit(cls, given)
    label = f"table {inherited['table']!r}" if "table" in inherited else f"class {cls.__qualname__}"
    fields = {name: field for base in reversed(cls.__mro__[1:]) for name, field in _fields(base)}
    local = sys._getframe(2).f_locals
    for name, annotation in inspect.get_annotations(cls).items():
        if not _is_class_variable(annotation):
            fields[name] = _resolve(cls, _read_field(cls, label, name, annotation), local)
    _check_unannotated(cls, label)
    declared = _Declared(fields, inherited)
    cls.__inbox__ = declared
    _make_dataclass(cls, fields)
    settings = declared.settings()
    if settings is not None:
        _check_settings(settings)
        spec = build_spec(settings, fields.values(), final=False)
        if all(field.unresolved is None for field in fields.values()):
            declared.spec = spec


def _inherit(cls: type[Inbox], given: dict[str, Any]) -> dict[str, Any]:
    inherited: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        if base is Inbox or not issubclass(base, Inbox):
            if "__dataclass_fields__" in vars(base):
                raise DeclarationError(
                    f"class {cls.__qualname__}: its base {base.__qualname__} is a dataclass but no Inbox; "
                    f"derive {base.__qualname__} from Inbox, without table"
                )
            continue
        inherited |= base.__inbox__.given
    if "table" in inherited and "table" not in given:
        raise DeclarationError(
            f"class {cls.__qualname__} derives from the class of table {inherited['table']!r} and names "
            f'no table of its own: class {cls.__name__}(…, table="…"), or move the shared fields to '
            f"a class without table"
        )
    return inherited | given


def _fields(base: type) -> Iterable[tuple[str, Field]]:
    if base is not Inbox and issubclass(base, Inbox):
        return base.__inbox__.fields.items()
    return ()


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.removeprefix("typing.").startswith("ClassVar")
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _read_field(cls: type[Inbox], label: str, name: str, annotation: Any) -> Field:
    value = vars(cls).get(name, MISSING)
    specifier = value if isinstance(value, Specifier) else Specifier(Role.DATA, default=value)
    if hasattr(Inbox, name):
        raise DeclarationError(
            f"{label}: field {name!r} has the name of a member of Inbox; rename the field and keep the "
            f'column: {name}_: {show(annotation)} = role.{specifier.role.value}("{name}")'
        )
    if isinstance(value, dataclasses.Field):
        raise DeclarationError(
            f"{label}: field {name!r} is set to dataclasses.field(); write role.column(…), which takes "
            f"default and default_factory too"
        )
    if specifier.default is not MISSING and type(specifier.default).__hash__ is None:
        raise DeclarationError(
            f"{label}: field {name!r} has a default that all rows would share; write "
            f"role.{specifier.role.value}(default_factory={type(specifier.default).__name__})"
        )
    return Field(name, annotation, specifier)


def _check_unannotated(cls: type[Inbox], label: str) -> None:
    annotated = inspect.get_annotations(cls)
    for name, value in vars(cls).items():
        if isinstance(value, Specifier) and name not in annotated:
            raise DeclarationError(
                f"{label}: field {name!r} has no type; write {name}: … = role.{value.role.value}(…)"
            )


def _check_settings(settings: Settings) -> None:
    codec = settings.codec
    if codec is not None and not (
        callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None))
    ):
        raise DeclarationError(
            f"table {settings.name!r}: codec must have encode(message) and decode(payload, type), as "
            f"inboxkit.codec.JSON has; got {codec!r}"
        )


def _resolve(cls: type[Inbox], field: Field, local: Mapping[str, Any] | None = None) -> Field:
    if not isinstance(field.annotation, str):
        return field
    owner = next(base for base in cls.__mro__ if field.name in inspect.get_annotations(base))
    module = sys.modules.get(owner.__module__)
    # Fields hide nothing: `date: date` means the type, though the class has a `date` now.
    nested = {name: value for name, value in vars(owner).items() if isinstance(value, type)}
    names = {**(local or {}), owner.__name__: owner, **nested}
    annotation, error = try_resolve(field.annotation, vars(module) if module else {}, names)
    return dataclasses.replace(field, annotation=annotation, unresolved=error)


def _make_dataclass(cls: type[Inbox], fields: Mapping[str, Field]) -> None:
    own = [name for name in inspect.get_annotations(cls) if name in fields]
    for name in own:
        setattr(cls, name, _dataclass_field(fields[name].specifier))
    dataclass(kw_only=True, repr=False, eq=False)(cls)
    for name in own:
        # What a row was not read with must not fall back to a default of the class.
        if name in vars(cls):
            delattr(cls, name)


def _dataclass_field(specifier: Specifier) -> Any:
    if not specifier.in_init:
        return dataclasses.field(init=False)
    if specifier.default_factory is not None:
        return dataclasses.field(default_factory=specifier.default_factory)
    if specifier.default is not MISSING:
        return dataclasses.field(default=specifier.default)
    return dataclasses.field()


# --- rows in and out


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
    values = {
        column.name: vars(row)[name]
        for name, column in spec.names.items()
        if name in vars(row)
        and (unreadable is None or not (column.generated or spec.role_of(column) in AUTOMATIC))
    }
    for name, error in (unreadable or {}).items():
        column = spec.names[name]
        if not (column.generated or spec.role_of(column) in AUTOMATIC):
            raise error.with_traceback(None)
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
