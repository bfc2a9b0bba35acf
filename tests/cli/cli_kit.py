"""What the tests of the command line share."""

from __future__ import annotations

import json
import os
import sys
import types
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from inboxkit import (
    Broker,
    Column,
    Database,
    InboxQueue,
    InboxSpec,
    Service,
    insert_rows,
    subscriber,
)
from inboxkit._cli.commands import inboxkit
from inboxkit._sql.control import create_control
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import Dialect, get_dialect
from inboxkit.database import Record

CONTROL = "inbox control"
HOUR = timedelta(hours=1)


@dataclass
class Mail:
    """A message."""

    to: str


class Cli:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def module(self, **attributes: Any) -> str:
        """A module that can be named, with these attributes."""
        name = f"program_{uuid.uuid4().hex[:8]}"
        module = types.ModuleType(name)
        vars(module).update(attributes)
        self._monkeypatch.setitem(sys.modules, name, module)
        return name

    def run(self, *arguments: str, status: int = 0, input: str | None = None) -> Result:
        """Run a command that ends with this status, without a traceback."""
        result = CliRunner().invoke(inboxkit, arguments, input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result

    def json(self, *arguments: str, status: int = 0) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.run(*arguments, "--json", status=status).stdout)


def lease_spec(table: str, **roles: Any) -> InboxSpec:
    """Everything but FIFO, in the lease form; roles may be left out by False or given otherwise."""
    columns: dict[str, Any] = {
        "id": Column("id", generated=True, type=int),
        "group": Column("name"),
        "priority": Column("priority", default=5),
        "partition_key": Column("account", type=str, default="k"),
        "retry_after": Column("due", default=None),
        "attempt": Column("attempt", generated=True),
        "locked_until": Column("locked"),
        "headers": Column("headers", default_factory=dict),
        "payload": Column("payload", type=bytes),
    }
    given = {name: value for name, value in {**columns, **roles}.items() if value is not False}
    return InboxSpec(table, **given)


def subscriber_of(queue: InboxQueue[Any, Any]) -> Any:
    """A handler that does nothing."""

    @subscriber(queue)
    async def handle(mail: Mail) -> None: ...

    return handle


def factory(
    *queues: InboxQueue[Any, Any],
    dead: dict[str, str] | None = None,
    control: bool = True,
    **settings: Any,
) -> Callable[[str], Service]:
    """What makes a service of these queues over a URL; `dead` says which queue has which dead letter."""

    def service(url: str) -> Service:
        name = CONTROL if control else None
        app = Service("mailer", Broker(Database(url)), control_table=name)
        for queue in queues:
            letter: dict[str, Any] = {}
            if dead is not None and queue.name in dead:
                letter = {"max_attempts": 3, "dead_letter": dead[queue.name]}
            app.include(subscriber_of(queue), **letter, **settings)
        return app

    return service


def on(url: str, work: Callable[[Database], Awaitable[Any]]) -> Any:
    """Run async work on a database."""

    async def main() -> Any:
        async with Database(url) as database:
            return await work(database)

    return anyio.run(main)


def make(url: str, *specs: InboxSpec, control: bool = False) -> None:
    """Make tables anew."""

    async def work(database: Database) -> None:
        dialect = get_dialect(database.dialect)
        for spec in specs:
            await database.execute(f"DROP TABLE IF EXISTS {dialect.table(spec.table, spec.schema)}")
            for statement in create_table(dialect, spec):
                await database.execute(statement)
        if control:
            spec = Service("s", Broker(database), control_table=CONTROL).control
            assert spec is not None
            await database.execute(f"DROP TABLE IF EXISTS {dialect.table(spec.table, None)}")
            await database.execute(create_control(dialect, spec))

    on(url, work)


def put(url: str, spec: InboxSpec, *rows: dict[str, Any]) -> list[Any]:
    """Insert rows with any values, by roles' names; returns their ids."""

    async def work(database: Database) -> list[Any]:
        info = await database.describe(spec)
        dialect = get_dialect(database.dialect)
        ids: list[Any] = []
        from inboxkit._sql.table import bind

        table = bind(dialect, spec, info)
        by_name = {
            column.role.value: column for column in table.columns if column.role.value != "column"
        }
        by_name |= {column.name: column for column in table.columns}
        for row in rows:
            given = {
                name: value
                for name, value in row.items()
                if name not in ("attempt", "locked_until", "processed_at")
            }
            message = given.pop("payload", Mail("x"))
            fields = {
                (by_name[name].name if name in by_name else name): value
                for name, value in given.items()
            }
            new = spec.of(message, **fields) if spec.payload is not None else spec.of(**fields)
            async with database.transaction() as tx:
                (id,) = await insert_rows(tx, new)
                for name in ("attempt", "locked_until", "processed_at"):
                    if name in row:
                        column = by_name[name]
                        cast = f"::{column.info.cast}" if column.info.cast else ""
                        await tx.execute(
                            f"UPDATE {table.sql} SET {column.sql} = $1{cast} WHERE {table.id.sql} = $2",
                            column.encode(row[name]),
                            table.id.encode(id),
                        )
            ids.append(id)
        return ids

    found: list[Any] = on(url, work)
    return found


def rows(url: str, spec: InboxSpec, *columns: str) -> list[tuple[Any, ...]]:
    """What a table holds, in the order of its ids."""

    async def work(database: Database) -> list[Record]:
        dialect = get_dialect(database.dialect)
        names = ", ".join(map(dialect.quote, columns))
        table = dialect.table(spec.table, spec.schema)
        return await database.fetch(
            f"SELECT {names} FROM {table} ORDER BY {dialect.quote(spec.id.name)}"
        )

    return [tuple(row) for row in on(url, work)]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere, so not as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def now() -> datetime:
    """The real clock: what commands go by."""
    return datetime.now(UTC)


def dialect_of(url: str) -> Dialect:
    """The dialect of a URL."""
    return get_dialect(Database(url).dialect)
