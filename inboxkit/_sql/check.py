"""Start-up's check of a table: every column there, of a type that can hold its role."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit.errors import SchemaError

from . import cures
from .column_types import accepted, known, must_be_nullable, python_type, spelt
from .convert import MisfitError
from .ddl import create_table
from .dialect import Dialect
from .info import ColumnInfo, TableInfo

__all__ = ["check", "check_dead_letter", "check_groups"]

_MICROSECONDS = 6
_LOCKS_ROWS = "InnoDB"


def check(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> None:
    """Compare a description with what the database says.

    Raises:
        SchemaError: The first difference that would break a claim or a settlement, with the types
            that are accepted and the cure.
        DialectError: The database cannot have a column of that name.
    """
    _check_kind(dialect, spec, info)
    for role, column in spec.roles():
        dialect.quote(column.name)
        found = info.column(column.name)
        if found is None:
            raise _missing(dialect, spec, info, role, column)
        _check_type(dialect, spec, role, column, found)
        _check_null(dialect, spec, role, column, found)
        _check_update(dialect, spec, role, column, found)
        _check_filled(dialect, spec, role, column, found)
    _check_others(dialect, spec, info)
    _check_unique(dialect, spec, info)
    _check_precision(dialect, spec, info)


def check_dead_letter(
    dialect: Dialect, spec: InboxSpec, info: TableInfo, dead: TableInfo, *, name: str
) -> None:
    """Check that a dead-letter table has the columns of the table whose rows it takes.

    Args:
        dialect: The database's.
        spec: The table whose rows move.
        info: What the database says of it.
        dead: What it says of the dead-letter table.
        name: The dead-letter table's name, for messages.

    Raises:
        SchemaError: It is missing, no table, or lacks a column.
    """
    if dead.kind != "table":
        raise SchemaError(
            f"the dead letters of {spec.name!r} go to table {name!r}, which is "
            f"{'missing' if dead.kind == 'missing' else f'a {dead.kind}'}; make it with the same columns",
            table=name,
        )
    _check_engine(dialect, name, dead)
    for column in info.columns:
        if not column.computed and dead.column(column.name) is None:
            raise SchemaError(
                f"dead-letter table {name!r} lacks column {column.name!r} of {spec.name!r}; "
                f"ALTER TABLE {dialect.table(dead.table, dead.schema)} ADD COLUMN "
                f"{dialect.quote(column.name)} {column.type}",
                table=name,
                column=column.name,
            )


def check_groups(
    dialect: Dialect, spec: InboxSpec, info: TableInfo, names: Iterable[str | None]
) -> None:
    """Check that the group column holds the names that will be written into it, or compared with it.

    Raises:
        SchemaError: It cannot hold one of them, such as one that is too long.
    """
    column = spec.group
    found = info.column(column.name) if column is not None else None
    if column is None or found is None:
        return
    encode = dialect.converter(Role.GROUP, column, found).encode
    for name in names:
        try:
            encode(name) if name is not None else None
        except MisfitError as error:
            cure = cures.change_type(dialect, spec, Role.GROUP, column, found)
            raise SchemaError(
                f"column {column.name!r} of table {spec.name!r} (role group) cannot hold the name "
                f"{name!r}: {error}; choose another name, or {cure}",
                table=spec.name,
                column=column.name,
            ) from None


def _check_kind(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> None:
    if info.kind == "missing":
        statements = ";\n".join(create_table(dialect, spec))
        raise SchemaError(
            f"table {spec.name!r} does not exist{_close(spec.table, info.nearby)}; inboxkit makes no "
            f"tables, so make it at start-up or in a migration, such as by:\n{statements}",
            table=spec.name,
        )
    if info.kind != "table":
        raise SchemaError(
            f"{spec.name!r} is a {info.kind}; a queue needs a table, whose rows can be locked and "
            "deleted: describe the table beneath it",
            table=spec.name,
        )
    _check_engine(dialect, spec.name, info)


def _check_engine(dialect: Dialect, name: str, info: TableInfo) -> None:
    if info.engine and info.engine.lower() != _LOCKS_ROWS.lower():
        table = dialect.table(info.table, info.schema)
        raise SchemaError(
            f"table {name!r} is kept by the storage engine {info.engine}, which locks no single rows or "
            f"undoes no transaction; ALTER TABLE {table} ENGINE = {_LOCKS_ROWS}",
            table=name,
        )


def _close(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=2)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def _missing(
    dialect: Dialect, spec: InboxSpec, info: TableInfo, role: Role, column: Column
) -> SchemaError:
    close = _close(column.name, (found.name for found in info.columns))
    kinds = accepted(role, python_type(role, column), dialect.name)
    added = f"ADD COLUMN {dialect.quote(column.name)} {cures.first(dialect, role, kinds)}"
    if role is Role.ATTEMPT:
        added += " NOT NULL DEFAULT 1"
    cure = cures.alter(dialect, spec, added)
    return SchemaError(
        f"table {spec.name!r} has no column {column.name!r}{_role(role)}{close}; {cure}",
        table=spec.name,
        column=column.name,
    )


def _role(role: Role) -> str:
    return "" if role is Role.DATA else f" (role {role.value})"


def _check_type(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, found: ColumnInfo
) -> None:
    python = python_type(role, column)
    kinds = accepted(role, python, dialect.name)
    if kinds is None or found.family in kinds:
        return
    if role is Role.DATA and found.family not in known(dialect.name):
        return  # an enum, a range, an extension's type: the driver's matter
    cure = cures.change_type(dialect, spec, role, column, found)
    met = repr(found.type) if found.type else "no type"
    wanted = f"{python.__name__} values" if isinstance(python, type) else "its values"
    raise SchemaError(
        f"column {column.name!r} of table {spec.name!r}{_role(role)} is of type {met}, which cannot "
        f"hold {wanted}; accepted: {spelt(kinds, dialect.name)}. {cure}",
        table=spec.name,
        column=column.name,
    )


def _check_null(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, found: ColumnInfo
) -> None:
    if found.nullable or not must_be_nullable(role):
        return
    cure = cures.allow_null(dialect, spec, column, found)
    raise SchemaError(
        f"column {column.name!r} of table {spec.name!r}{_role(role)} is NOT NULL, but is NULL in every "
        f"row that waits; {cure}",
        table=spec.name,
        column=column.name,
    )


def _check_update(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, found: ColumnInfo
) -> None:
    """A claim updates the row: that must not move its due time, nor finish it."""
    if not found.on_update or role is Role.DATA:
        return
    cure = cures.no_update(dialect, spec, column, found)
    raise SchemaError(
        f"column {column.name!r} of table {spec.name!r}{_role(role)} takes the current time at each "
        f"update of its row (MariaDB gives that to the first TIMESTAMP NOT NULL by itself); {cure}",
        table=spec.name,
        column=column.name,
    )


def _check_filled(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, found: ColumnInfo
) -> None:
    """Inserts leave out what the database fills, and it must fill it; they write the rest."""
    if column.generated:
        if found.has_default or found.computed or (found.nullable and role is not Role.ID):
            return
        problem = "is generated by the description, but the database does not fill it"
        cure = cures.fill(dialect, spec, role, column)
    elif found.always_identity or found.computed:
        problem = "is filled by the database alone, and the description would write it"
        cure = "declare it with generated=True"
    else:
        return
    raise SchemaError(
        f"column {column.name!r} of table {spec.name!r}{_role(role)} {problem}; {cure}",
        table=spec.name,
        column=column.name,
    )


def _check_others(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> None:
    """Columns that the description does not know are left out by inserts."""
    described = [column.name for _, column in spec.roles()]
    for found in info.columns:
        if found.nullable or found.has_default or found.computed or found.always_identity:
            continue
        if any(info.same(found.name, name) for name in described):
            continue
        raise SchemaError(
            f"column {found.name!r} of table {spec.name!r} is NOT NULL without a default, and the "
            f"description does not know it, so that every insert would fail; describe it, as "
            f"role.column(), or {cures.leave_out(dialect, spec, info, found)}",
            table=spec.name,
            column=found.name,
        )


def _check_unique(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> None:
    if info.has_unique(spec.id.name):
        return
    raise SchemaError(
        f"column {spec.id.name!r} of table {spec.name!r} (role id) has no unique index of its own: a "
        f"claim of one row would take every row of that id; {cures.make_unique(dialect, spec, info)}",
        table=spec.name,
        column=spec.id.name,
    )


def _check_precision(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> None:
    """Two leases that end in the same unit look alike: the attempt then tells them apart."""
    column = spec.locked_until
    if column is None or spec.attempt is not None:
        return
    found = info.column(column.name)
    assert found is not None
    if found.precision < _MICROSECONDS:
        cure = cures.keep_microseconds(dialect, spec, column)
        raise SchemaError(
            f"column {column.name!r} of table {spec.name!r} (role locked_until) keeps "
            f"{found.precision} fraction digits, too few to tell one lease from another; "
            f"{cure}, or describe an attempt column",
            table=spec.name,
            column=column.name,
        )
