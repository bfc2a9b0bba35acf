"""What a class statement says: its fields, their types, and the dataclass made of them."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_origin

from inboxkit.errors import DeclarationError

from .annotations import show, try_resolve
from .declaration import Field, Settings, Specifier, build_spec
from .roles import MISSING, Role
from .spec import InboxSpec

__all__ = ["Declared", "declare"]


class Declared:
    """What a class says of its table, the types of its fields resolved as far as they can be.

    Args:
        fields: By name, inherited ones first.
        given: What class statements said: table, schema, advisory_lock, codec.
    """

    def __init__(self, fields: dict[str, Field], given: dict[str, Any]) -> None:
        self.fields = fields
        self.given = given
        self._spec: InboxSpec | None = None

    def check(self) -> None:
        """Refuse what is wrong as far as it can be told now, some types being unknown perhaps."""
        if "table" not in self.given:
            return
        settings = Settings(**self.given)
        _check_settings(settings)
        spec = build_spec(settings, self.fields.values(), final=False)
        if all(field.unresolved is None for field in self.fields.values()):
            self._spec = spec

    def spec(self, cls: type) -> InboxSpec:
        """Return the description of the table, its types looked up once more where that was too early.

        Raises:
            DeclarationError: The class names no table, or a type cannot be resolved or does not fit.
        """
        if self._spec is None:
            if "table" not in self.given:
                raise DeclarationError(
                    f'{cls.__qualname__} names no table: class {cls.__name__}(Inbox, table="…")'
                )
            fields = [_resolve(cls, field) for field in self.fields.values()]
            self._spec = build_spec(Settings(**self.given), fields, final=True)
        return self._spec


def declare(cls: type, base: type, given: Mapping[str, Any], local: Mapping[str, Any]) -> Declared:
    """Read a class statement, and make the class a keyword-only dataclass.

    Args:
        cls: The new class.
        base: `Inbox`.
        given: What the class statement says beside its fields.
        local: Names of the scope that it stands in, for annotations that are text.

    Raises:
        DeclarationError: The first contradiction; names the table, the field and the cure.
    """
    inherited = _inherit(cls, base, given)
    label = f"table {inherited['table']!r}" if "table" in inherited else f"class {cls.__qualname__}"
    fields: dict[str, Field] = {}
    for parent in reversed(cls.__mro__[1:]):
        fields |= _declared(parent, base).fields
    for name, annotation in inspect.get_annotations(cls).items():
        if not _is_class_variable(annotation):
            fields[name] = _resolve(cls, _read_field(cls, base, label, name, annotation), local)
    _check_unannotated(cls, label)
    declared = Declared(fields, inherited)
    declared.check()
    _make_dataclass(cls, fields)
    return declared


_NOTHING = Declared({}, {})


def _declared(cls: type, base: type) -> Declared:
    if cls is base or not issubclass(cls, base):
        return _NOTHING
    declared: Declared = vars(cls)["__inbox__"]
    return declared


def _inherit(cls: type, base: type, given: Mapping[str, Any]) -> dict[str, Any]:
    inherited: dict[str, Any] = {}
    for parent in reversed(cls.__mro__[1:]):
        if not issubclass(parent, base) and "__dataclass_fields__" in vars(parent):
            raise DeclarationError(
                f"class {cls.__qualname__}: its base {parent.__qualname__} is a dataclass but no Inbox; "
                f"derive {parent.__qualname__} from Inbox, without table"
            )
        inherited |= _declared(parent, base).given
    if "table" in inherited and "table" not in given:
        raise DeclarationError(
            f"class {cls.__qualname__} derives from the class of table {inherited['table']!r} and names "
            f'no table of its own: class {cls.__name__}(…, table="…"), or move the shared fields to '
            f"a class without table"
        )
    return inherited | dict(given)


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.removeprefix("typing.").startswith("ClassVar")
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _read_field(cls: type, base: type, label: str, name: str, annotation: Any) -> Field:
    value = vars(cls).get(name, MISSING)
    if callable(value) and getattr(value, "__module__", None) == "inboxkit.role":
        called = f"role.{value.__name__}"
        raise DeclarationError(
            f"{label}: field {name!r} is set to {called} itself; call it: {name}: {show(annotation)} = "
            f"{called}()"
        )
    specifier = value if isinstance(value, Specifier) else Specifier(Role.DATA, default=value)
    if name in dir(base):
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


def _check_unannotated(cls: type, label: str) -> None:
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


def _resolve(cls: type, field: Field, local: Mapping[str, Any] | None = None) -> Field:
    if not isinstance(field.annotation, str):
        return field
    owner = next(base for base in cls.__mro__ if field.name in inspect.get_annotations(base))
    module = sys.modules.get(owner.__module__)
    # Fields hide nothing: `date: date` means the type, though the class has a `date` now.
    nested = {name: value for name, value in vars(owner).items() if isinstance(value, type)}
    names = {**(local or {}), owner.__name__: owner, **nested}
    annotation, error = try_resolve(field.annotation, vars(module) if module else {}, names)
    return dataclasses.replace(field, annotation=annotation, unresolved=error)


def _make_dataclass(cls: type, fields: Mapping[str, Field]) -> None:
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
