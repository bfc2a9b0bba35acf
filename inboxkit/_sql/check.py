"""Start-up's check of a table: every column there, of a type that can hold its role."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit.errors import SchemaError

from .column_types import accepted, known, must_be_nullable, python_type, spelt
from .ddl import create_table
from .dialect import Dialect
from .info import ColumnInfo, TableInfo

__all__ = ["check", "check_dead_letter"]

_MICROSECONDS = 6
_RECOMMENDED = {
    "timestamp with time zone": "timestamptz(6)",
    "character varying": "varchar",
}


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
    for column in info.columns:
        if not column.computed and dead.column(column.name) is None:
            raise SchemaError(
                f"dead-letter table {name!r} lacks column {column.name!r} of {spec.name!r}; "
                f"ALTER TABLE {dialect.table(dead.table, dead.schema)} ADD COLUMN "
                f"{dialect.quote(column.name)} {column.type}",
                table=name,
                column=column.name,
            )


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


def _close(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=2)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def _missing(
    dialect: Dialect, spec: InboxSpec, info: TableInfo, role: Role, column: Column
) -> SchemaError:
    close = _close(column.name, (found.name for found in info.columns))
    kinds = accepted(role, python_type(role, column), dialect.name)
    cure = _alter(
        dialect, spec, f"ADD COLUMN {dialect.quote(column.name)} {_first(dialect, kinds)}"
    )
    return SchemaError(
        f"table {spec.name!r} has no column {column.name!r}{_role(role)}{close}; {cure}",
        table=spec.name,
        column=column.name,
    )


def _role(role: Role) -> str:
    return "" if role is Role.DATA else f" (role {role.value})"


def _first(dialect: Dialect, kinds: tuple[str, ...] | None) -> str:
    if not kinds:
        return "…"
    if dialect.name == "sqlite":
        return {"INT": "INTEGER", "TIME": "TEXT", "NONE": ""}.get(kinds[0], kinds[0])
    return _RECOMMENDED.get(kinds[0], kinds[0]) if kinds[0] != "smallint" else "integer"


def _alter(dialect: Dialect, spec: InboxSpec, action: str) -> str:
    return f"ALTER TABLE {dialect.table(spec.table, spec.schema)} {action}"


def _check_type(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, found: ColumnInfo
) -> None:
    python = python_type(role, column)
    kinds = accepted(role, python, dialect.name)
    if kinds is None or found.family in kinds:
        return
    if role is Role.DATA and found.family not in known(dialect.name):
        return  # an enum, a range, an extension's type: the driver's matter
    met = repr(found.type) if found.type else "no type"
    wanted = f"{python.__name__} values" if isinstance(python, type) else "its values"
    raise SchemaError(
        f"column {column.name!r} of table {spec.name!r}{_role(role)} is of type {met}, which cannot "
        f"hold {wanted}; accepted: {spelt(kinds, dialect.name)}. {_cure(dialect, spec, column, found, kinds)}",
        table=spec.name,
        column=column.name,
    )


def _cure(
    dialect: Dialect, spec: InboxSpec, column: Column, found: ColumnInfo, kinds: tuple[str, ...]
) -> str:
    name = dialect.quote(column.name)
    first = _first(dialect, kinds)
    if dialect.name == "sqlite":
        return f"SQLite cannot change a column's type: make the table anew with {name} {first}"
    # By way of text, since few types have a cast of their own; bytes and text are not each other's.
    if first == "bytea":
        value = f"convert_to({name}::text, 'UTF8')"
    elif found.family == "bytea":
        value = f"convert_from({name}, 'UTF8')::{first}"
    else:
        value = f"{name}::text::{first}"
    return _alter(dialect, spec, f"ALTER COLUMN {name} TYPE {first} USING {value}")


def _check_null(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, found: ColumnInfo
) -> None:
    if found.nullable or not must_be_nullable(role):
        return
    name = dialect.quote(column.name)
    cure = (
        f"SQLite cannot change that: make the table anew with a nullable {name}"
        if dialect.name == "sqlite"
        else _alter(dialect, spec, f"ALTER COLUMN {name} DROP NOT NULL")
    )
    raise SchemaError(
        f"column {column.name!r} of table {spec.name!r}{_role(role)} is NOT NULL, but is NULL in every "
        f"row that waits; {cure}",
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
        cure = _default(dialect, spec, role, column)
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
        cure = "describe it, as role.column(), or make it anew with a default"
        if dialect.name == "postgres" and (action := _relieve(dialect, info, found)):
            cure = f"describe it, as role.column(), or {_alter(dialect, spec, action)}"
        raise SchemaError(
            f"column {found.name!r} of table {spec.name!r} is NOT NULL without a default, and the "
            f"description does not know it, so that every insert would fail; {cure}",
            table=spec.name,
            column=found.name,
        )


def _relieve(dialect: Dialect, info: TableInfo, found: ColumnInfo) -> str:
    name = dialect.quote(found.name)
    if not info.has_unique(found.name):
        return f"ALTER COLUMN {name} DROP NOT NULL"
    if found.family in ("smallint", "integer", "bigint"):  # of a key, which is never NULL
        return f"ALTER COLUMN {name} ADD GENERATED BY DEFAULT AS IDENTITY"
    return ""


def _default(dialect: Dialect, spec: InboxSpec, role: Role, column: Column) -> str:
    name = dialect.quote(column.name)
    if role is Role.ID and dialect.name == "sqlite":
        return f"declare {name} INTEGER PRIMARY KEY, or drop generated and give the ids"
    if role is Role.ID:
        action = f"ALTER COLUMN {name} ADD GENERATED BY DEFAULT AS IDENTITY"
        return f"{_alter(dialect, spec, action)}, or drop generated and give the ids"
    value = "1" if role is Role.ATTEMPT else "…"
    if dialect.name == "sqlite":
        return f"declare it DEFAULT {value}, or drop generated"
    return f"{_alter(dialect, spec, f'ALTER COLUMN {name} SET DEFAULT {value}')}, or drop generated"


def _check_unique(dialect: Dialect, spec: InboxSpec, info: TableInfo) -> None:
    if info.has_unique(spec.id.name):
        return
    table, name = dialect.table(spec.table, spec.schema), dialect.quote(spec.id.name)
    raise SchemaError(
        f"column {spec.id.name!r} of table {spec.name!r} (role id) has no unique index of its own: a "
        f"claim of one row would take every row of that id; CREATE UNIQUE INDEX ON {table} ({name})"
        if dialect.name == "postgres"
        else f"column {spec.id.name!r} of table {spec.name!r} (role id) has no unique index of its own: "
        f"a claim of one row would take every row of that id; CREATE UNIQUE INDEX "
        f"{dialect.quote(spec.table + '_id')} ON {dialect.quote(spec.table)} ({name})",
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
        action = f"ALTER COLUMN {dialect.quote(column.name)} TYPE timestamptz(6)"
        raise SchemaError(
            f"column {column.name!r} of table {spec.name!r} (role locked_until) keeps "
            f"{found.precision} fraction digits, too few to tell one lease from another; "
            f"{_alter(dialect, spec, action)}, or describe an attempt column",
            table=spec.name,
            column=column.name,
        )
