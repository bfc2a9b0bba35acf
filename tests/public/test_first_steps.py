"""What somebody who is new here gets wrong, and what the answer names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NewType, TypedDict
from uuid import UUID

import anyio
import msgspec
import pytest

from inboxkit import (
    Broker,
    ConnectError,
    Database,
    DatabaseError,
    DeclarationError,
    EncodeError,
    Inbox,
    InboxQueue,
    SchemaError,
    Service,
    insert_rows,
    role,
    subscriber,
)
from inboxkit._core.fitting import fits
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

pydantic = pytest.importorskip("pydantic", reason="pydantic is in the extra dev")

ROOT = Path(__file__).parents[2]
WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]


@dataclass
class Report:
    pages: int


@dataclass
class Longer(Report):
    lines: int = 0


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


class Typed(TypedDict):
    n: int


class Colour(Enum):
    RED = "red"


Name = NewType("Name", str)


class Job(Inbox, table="first_jobs"):
    id: int = role.id(generated=True)
    due: datetime | None = role.retry_after()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


TYPES: list[tuple[Any, list[Any], list[Any]]] = [
    (Report, [Report(1), Longer(1)], [{"pages": 1}, "{}", b"{}", None, Struct(1), Report]),
    (Struct, [Struct(1)], [Model(n=1), 7]),
    (Model, [Model(n=1)], [{"n": 1}, '{"n": 1}']),
    (Typed, [{"n": 1}], ['{"n": 1}', b"", Struct(1)]),
    (str, ["x", ""], [b"x", 1, Report(1), None]),
    (Name, ["x"], [b"x"]),
    (bytes, [b"x", bytearray(b"x"), memoryview(b"x")], ["x", 1]),
    (list[int], [[1], (1,)], ["[1]", {"a": 1}]),
    (dict[str, int], [{"a": 1}], [[1], "{}"]),
    (Report | Struct, [Report(1), Struct(1)], [Model(n=1), "x"]),
    (Report | None, [Report(1), None], [0]),
    (float, [1.5, 2], ["1.5"]),
    (Decimal, [Decimal(1), 2, 2.5], ["2"]),
    (int, [1], [1.5, "1"]),
    (UUID, [UUID(int=1)], [str(UUID(int=1))]),
    (Colour, [Colour.RED], ["red"]),
    (Literal["a"], ["a"], []),
    (Any, ["a", Report(1)], []),
]
"""A declared type, messages that are of it, and messages that are not."""


def test_whether_a_message_is_of_a_declared_type() -> None:
    for declared, taken, refused in TYPES:
        assert [message for message in taken if not fits(message, declared)] == [], declared
        assert [message for message in refused if fits(message, declared)] == [], declared


def test_a_message_of_another_type_is_not_stored(with_database: WithDatabase) -> None:
    async def handle(report: Report) -> None: ...

    async def test(db: Database) -> None:
        await db.execute("DROP TABLE IF EXISTS first_jobs")
        for statement in create_table(get_dialect(db.dialect), Job.spec):
            await db.execute(statement)
        declared, by_handler = InboxQueue(Job, "jobs", Report), InboxQueue(Job, "jobs")
        for queue in (declared, by_handler):
            app = Service("first", Broker(db))
            app.include(subscriber(queue)(handle))  # type: ignore[arg-type]
            for name in (queue, InboxQueue(Job, "jobs"), "jobs"):
                with pytest.raises(EncodeError, match=r"'jobs' takes .*Report, not str") as raised:
                    await app.broker.publish(name, "a secret", due=None)  # type: ignore[call-overload]
                assert (raised.value.queue, raised.value.table) == ("jobs", "first_jobs")
                assert "secret" not in str(raised.value)
            await app.broker.publish("jobs", Report(1), due=None)
        assert await db.fetch_value("SELECT count(*) FROM first_jobs") == 2
        # A due time without a default has to be given, each time.
        for attempt in (lambda: app.broker.publish(declared, Report(1)), lambda: _of(Report(1))):
            with pytest.raises(TypeError, match=r"Job\.of\(\).*'due'.*default=None.*due now"):
                await attempt()
        with pytest.raises(DatabaseError, match=r"write \$1.* in place of '\?'"):
            await db.execute("INSERT INTO first_jobs (payload) VALUES (?)", b"x")
        with pytest.raises(DatabaseError, match=r"write \$1.* in place of '%s'"):
            await db.fetch("SELECT '?', %s", 1)
        await _blocks(db)

    with_database(test)


async def _of(message: Any) -> Any:
    return Job.of(message)  # type: ignore[call-arg]


async def _blocks(db: Any) -> None:
    cure = r"async with ….transaction\(\) as tx"
    with pytest.raises(TypeError, match=cure):
        await db.transaction()
    with pytest.raises(AttributeError, match=rf"'execute'.*{cure}"):
        await db.transaction().execute("SELECT 1")
    with pytest.raises(TypeError, match=cure), db.transaction():
        pass
    with pytest.raises(TypeError, match=cure):
        await insert_rows(db.transaction(), Job.of(Report(1), due=None))
    with pytest.raises(TypeError, match=r"async with ….connection\(\) as connection"):
        await db.connection()
    async with db.transaction() as tx:
        with pytest.raises(TypeError, match=cure):
            await tx.transaction()
        async with tx.transaction() as nested:
            assert await nested.fetch_value("SELECT 1") == 1


def test_a_plain_with_is_told_what_to_write() -> None:
    db = Database("sqlite:///:memory:")
    broker = Broker(db)
    service = Service("s", broker)
    for manager, name in ((db, "Database"), (broker, "Broker")):
        with (
            pytest.raises(TypeError, match=f"^{name} is an async .*: write async with, not with$"),
            manager,
        ):
            raise AssertionError("it was entered")
    with (
        pytest.raises(TypeError, match=r"running\(\) .*write: async with service\.running\(\): …"),
        service.running(),  # type: ignore[attr-defined]
    ):
        raise AssertionError("it was entered")


def test_functions_that_are_not_async_and_roles_that_are_not_called() -> None:
    app = Service("first", Broker("sqlite:///:memory:"))
    for method in (app.on_startup, app.use):
        with pytest.raises(DeclarationError, match="async def"):
            method(lambda *_: None)  # type: ignore[operator]

    async def resources(app: Service) -> Any:
        yield 1

    with pytest.raises(DeclarationError, match="asynccontextmanager"):
        Service("first", Broker("sqlite:///:memory:"), lifespan=resources)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"'id' is set to role\.id itself.*role\.id\(\)"):

        class Wrong(Inbox, table="wrong"):
            id: int = role.id  # type: ignore[assignment]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_server_that_cannot_be_reached_is_named(backend: str) -> None:
    async def main() -> None:
        url = "postgresql://me:secret@no-such-host.invalid:5432/db"
        with pytest.raises(ConnectError, match=r"me:\*\*\*@no-such-host.invalid:5432/db") as raised:
            await Database(url).open()
        assert "secret" not in str(raised.value)

    anyio.run(main, backend=backend)


def test_a_column_that_no_insert_would_fill_stops_the_start(with_database: WithDatabase) -> None:
    async def handle(report: Report) -> None: ...

    async def test(db: Database) -> None:
        await db.execute("DROP TABLE IF EXISTS first_jobs")
        for statement in create_table(get_dialect(db.dialect), Job.spec):
            await db.execute(statement)
        queue = InboxQueue(Job, "jobs", Report)
        app = Service("first", Broker(db))
        app.include(subscriber(queue)(handle))
        for extra in ("a TEXT", "b INTEGER NOT NULL DEFAULT 0"):
            await db.execute(f"ALTER TABLE first_jobs ADD COLUMN {extra}")
            async with app.running():
                pass
        if db.dialect == "postgres":
            await db.execute("ALTER TABLE first_jobs ADD COLUMN tenant text NOT NULL")
        else:
            await db.execute("DROP TABLE first_jobs")
            (table, *_) = create_table(get_dialect(db.dialect), Job.spec)
            head, _, rest = table.partition("(")
            await db.execute(f"{head}(tenant TEXT NOT NULL, {rest}")
        with pytest.raises(SchemaError, match=r"'tenant'.*NOT NULL without a default") as raised:
            async with app.running():
                pass
        assert (raised.value.table, raised.value.column) == ("first_jobs", "tenant")
        assert "role.column()" in str(raised.value)
        if db.dialect == "postgres":
            await db.execute(str(raised.value).rpartition("or ")[2])
            async with app.running():
                pass

    with_database(test)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_the_command_line_has_no_traceback_for_a_full_disk() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "inboxkit", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["inboxkit: [Errno 28] No space left on device"]


@pytest.mark.parametrize("count", ["-3"])
def test_an_example_refuses_a_number_that_is_none(count: str) -> None:
    command = [sys.executable, str(ROOT / "docs/examples/reports.py"), "--publish", count]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"expected a number of 0 or more, not '{count}'" in done.stderr
