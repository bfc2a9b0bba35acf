"""From the fields of an `Inbox` class to the description of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from inboxkit.errors import DeclarationError

from .annotations import members, show
from .roles import AUTOMATIC, MISSING, Column, Role, type_error
from .spec import InboxSpec, PayloadCodec

__all__ = ["Field", "Settings", "Specifier", "build_spec"]


@dataclass(frozen=True, slots=True)
class Specifier:
    """What a role function returns at run time."""

    role: Role
    name: str | None = None
    generated: bool = False
    default: Any = MISSING
    default_factory: Callable[[], Any] | None = None
    fifo: bool = False

    @property
    def in_init(self) -> bool:
        """Whether the caller gives it when making a row."""
        return not (self.generated or self.role in AUTOMATIC or self.role is Role.PAYLOAD)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class."""

    name: str
    annotation: Any
    """Its type, or the text of it where it could not be resolved yet."""
    specifier: Specifier
    unresolved: Exception | None = None
    """Why the annotation is still text."""

    @property
    def column(self) -> str:
        """Its column's name."""
        return self.name if self.specifier.name is None else self.specifier.name


@dataclass(frozen=True, slots=True)
class Settings:
    """What the class statement says of the table."""

    table: str
    schema: str | None = None
    advisory_lock: str | None = None
    codec: PayloadCodec | None = None

    @property
    def name(self) -> str:
        """As messages name the table."""
        return f"{self.schema}.{self.table}" if self.schema else self.table


def build_spec(settings: Settings, fields: Iterable[Field], *, final: bool) -> InboxSpec:
    """Describe a table by the fields of its class.

    Args:
        settings: The class statement's.
        fields: In order, inherited ones first.
        final: Refuse annotations that could not be resolved, which may still become so otherwise.

    Raises:
        DeclarationError: The first contradiction; names the table, the field and the cure.
    """
    roles: dict[Role, Field] = {}
    columns: dict[str, Field] = {}
    described: dict[Role, Column] = {}
    data: list[Column] = []
    for field in fields:
        _check_once(settings, roles, columns, field)
        column = _describe(settings, field, final=final)
        columns[field.column] = field
        if field.specifier.role is Role.DATA:
            data.append(column)
        else:
            roles[field.specifier.role] = field
            described[field.specifier.role] = column
    if Role.ID not in roles:
        raise DeclarationError(
            f"table {settings.name!r} has no id, which every table needs; add a field such as "
            f"id: int = role.id(generated=True)"
        )
    return InboxSpec(
        settings.table,
        schema=settings.schema,
        advisory_lock=settings.advisory_lock,
        codec=settings.codec,
        fifo=Role.GROUP in roles and roles[Role.GROUP].specifier.fifo,
        columns=tuple(data),
        fields={field.name: name for name, field in columns.items() if field.name != name},
        **{role.value: column for role, column in described.items()},
    )


def _check_once(
    settings: Settings, roles: dict[Role, Field], columns: dict[str, Field], field: Field
) -> None:
    role = field.specifier.role
    if role in roles:
        raise DeclarationError(
            f"table {settings.name!r}: fields {roles[role].name!r} and {field.name!r} both have the role "
            f"{role.value}; keep one, make the other role.column()"
        )
    if field.column in columns:
        raise DeclarationError(
            f"table {settings.name!r}: fields {columns[field.column].name!r} and {field.name!r} both "
            f"name the column {field.column!r}; keep one"
        )


def _describe(settings: Settings, field: Field, *, final: bool) -> Column:
    specifier = field.specifier
    if field.unresolved is not None and final:
        raise DeclarationError(
            f"table {settings.name!r}: the type {field.annotation!r} of field {field.name!r} cannot be "
            f"resolved ({type(field.unresolved).__name__}: {field.unresolved}); import it at run time, "
            f"outside `if TYPE_CHECKING`"
        ) from field.unresolved
    kind = None
    if field.unresolved is None:
        if allowed := type_error(specifier.role, field.annotation):
            raise DeclarationError(
                f"table {settings.name!r}: field {field.name!r} has the role {specifier.role.value} and "
                f"the type {show(field.annotation)}; write {field.name}: {allowed}"
            )
        kind = column_type(field.annotation)
    try:
        return Column(
            field.column,
            generated=specifier.generated,
            default=specifier.default,
            default_factory=specifier.default_factory,
            type=kind,
        )
    except DeclarationError as error:
        raise DeclarationError(f"table {settings.name!r}: field {field.name!r}: {error}") from None


def column_type(annotation: Any) -> Any:
    """Return the type of a column's values: the annotation without None, Annotated and NewType."""
    kinds = [kind for kind in members(annotation) if kind is not type(None)]
    if len(kinds) == 1:
        return None if kinds[0] is Any else kinds[0]
    return annotation
