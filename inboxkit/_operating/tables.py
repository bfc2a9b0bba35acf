"""The tables that a service needs, as statements that would make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.control import create_control
from inboxkit._sql.ddl import create_missing, create_table
from inboxkit._sql.dialect import Dialect
from inboxkit.service import Service

from .places import dead_letters

__all__ = ["Made", "tables_of"]


@dataclass(frozen=True, slots=True)
class Made:
    """One statement."""

    table: str
    """The name of the table that it is for."""
    purpose: str
    """What it makes, for people."""
    text: str


def tables_of(service: Service, dialect: Dialect, *, if_missing: bool = False) -> list[Made]:
    """Every table of a service with its indexes, and the control table; in order.

    Args:
        service: Whose.
        dialect: The database's.
        if_missing: Whether what is there already is left as it is, and is no error.

    Raises:
        DialectError: The database cannot have such a name.
    """
    made = []
    for spec, purpose in _described(service):
        texts = (create_missing if if_missing else create_table)(dialect, spec)
        purposes = [purpose, *(index.purpose for index in dialect.indexes(spec))]
        # One statement may make all of them.
        made += [Made(spec.name, *one) for one in zip(purposes, texts, strict=False)]
    if service.control is not None:
        text = create_control(dialect, service.control, if_missing=if_missing)
        made.append(Made(service.control.name, "which queues are paused", text))
    return made


def _described(service: Service) -> Iterable[tuple[InboxSpec, str]]:
    served: dict[str, InboxSpec] = {}
    queues: dict[str, list[str]] = {}
    for one in service.included:
        _merge(served, one.spec)
        queues.setdefault(one.spec.name, []).append(one.queue.name)
    for spec in service.broker.specs:
        _merge(served, spec)
    letters = [letter.spec for letter in dead_letters(service) if letter.is_table]
    dead = {spec.name: spec for spec in letters if spec.name not in served}
    for name, spec in served.items():
        what = ", ".join(map(repr, queues.get(name, [])))
        yield spec, f"queue {what}" if what else "published to"
    for spec in dead.values():
        yield spec, "dead letters"


def _merge(known: dict[str, InboxSpec], spec: InboxSpec) -> None:
    """A table may be described twice, each time as far as somebody needs it."""
    first = known.setdefault(spec.name, spec)
    if first is spec or first == spec:
        return
    names = {column.name for _role, column in first.roles()}
    more: dict[str, Any] = {}
    data: list[Column] = []
    roles = {field.name for field in fields(InboxSpec)}
    for role, column in spec.roles():
        if column.name in names:
            continue
        if role is not Role.DATA and role.value in roles and getattr(first, role.value) is None:
            more[role.value] = column
        else:
            data.append(column)
    known[spec.name] = replace(first, columns=(*first.columns, *data), **more)
