"""Which server it is that speaks a database's protocol, and what follows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from inboxkit import Broker, Database, InboxQueue, InboxSpec, Service, subscriber
from inboxkit._core.spec import Column
from inboxkit._operating.checking import check_service
from inboxkit._sql import servers
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.servers import check_cockroach, galera_warning, is_galera, read_is_galera
from inboxkit._sql.statement import Answer, Reading, Statement
from inboxkit.errors import DialectError

WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
COCKROACH = [
    "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)",
    "CockroachDB OSS v22.2.0 (aarch64-unknown-linux-gnu, built 2022/12/05, go1.19.1)",
    "cockroachdb v25.4",
]
SERVED = [
    "PostgreSQL 15.4 (Debian 15.4-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit",
    "PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17, 64-bit",
    "PostgreSQL 16.1 on aarch64, built to migrate from CockroachDB",
    "",
]


VARIABLES: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"wsrep_on": "OFF", "wsrep_provider": "none"}, False),
    ({"wsrep_on": "ON", "wsrep_provider": "none"}, False),
    ({"wsrep_on": "ON", "wsrep_provider": ""}, False),
    ({"wsrep_on": "OFF", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, False),
    ({"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, True),
    ({"wsrep_on": "1", "wsrep_provider": "/usr/lib/galera4/libgalera_smm.so"}, True),
]


@pytest.mark.parametrize(("variables", "is_one"), VARIABLES)
def test_a_node_of_a_cluster_is_known_by_its_variables(
    variables: dict[str, str], is_one: bool
) -> None:
    assert is_galera(variables) is is_one


def spec(table: str = "jobs", *, kind: str) -> InboxSpec:
    more: dict[str, Any] = {
        "row lock": {},
        "advisory lock": {"advisory_lock": "job-{id}"},
        "lease": {"locked_until": Column("locked_until")},
        "FIFO lease": {"locked_until": Column("locked_until"), "group": Column("g"), "fifo": True},
        "FIFO row lock": {"group": Column("g"), "fifo": True},
    }[kind]
    return InboxSpec(
        table, id=Column("id", generated=True, type=int), payload=Column("payload"), **more
    )


WARNED = {
    "row lock": "the row lock form goes by locks",
    "advisory lock": "the advisory lock form goes by locks",
    "lease": None,
    "FIFO lease": "the guard of FIFO groups goes by locks",
    "FIFO row lock": "the row lock form goes by locks",
}


@pytest.mark.parametrize("kind", WARNED)
def test_what_goes_by_locks_of_one_node_is_warned_of(kind: str) -> None:
    text, expected = galera_warning(spec(kind=kind)), WARNED[kind]
    if expected is None:
        assert text is None
        return
    assert text is not None
    assert expected in text
    assert "let all workers write to the same node" in text


@pytest.mark.parametrize("version", COCKROACH)
@pytest.mark.parametrize("kind", WARNED)
def test_cockroach_is_refused_where_locks_are_gone_by(kind: str, version: str) -> None:
    described = spec(kind=kind)
    if kind == "lease":
        check_cockroach(version, described)
        return
    with pytest.raises(
        DialectError, match=r"table .jobs.: the server is (CockroachDB|cockroachdb)"
    ) as caught:
        check_cockroach(version, described)
    told = str(caught.value)
    assert f"is {version.partition(' (')[0]}, and the " in told
    assert (
        "the guard of FIFO groups goes" if kind == "FIFO lease" else "form goes by locks"
    ) in told
    assert "advisory locks lock nothing" in told
    assert "use the lease form without FIFO groups there" in told


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize("kind", WARNED)
def test_other_servers_of_the_protocol_are_not_refused(kind: str, version: str) -> None:
    check_cockroach(version, spec(kind=kind))


@pytest.mark.parametrize("kind", WARNED)
def test_a_table_of_cockroach_is_refused_as_it_is_looked_at(kind: str) -> None:
    steps = get_dialect("postgres").describe(spec(kind=kind)).steps(Reading(NOW, 0.0))
    next(steps)
    found = Answer(rows=[("jobs", "public", "r", [], COCKROACH[0])])
    if kind == "lease":
        assert steps.send(found).name == "describe columns"
        return
    with pytest.raises(DialectError, match="CockroachDB"):
        steps.send(found)


on_either = pytest.mark.parametrize(
    "with_database", [("asyncio", "mariadb"), ("trio", "mysql")], ids="-".join, indirect=True
)


@on_either
def test_a_server_alone_is_no_node(with_database: WithDatabase) -> None:
    async def ask(db: Database) -> bool:
        return await db.run(read_is_galera())

    assert with_database(ask) is False


@pytest.mark.parametrize("kind", WARNED)
@on_either
def test_a_start_and_a_check_on_a_node_warn(
    with_database: WithDatabase,
    kind: str,
    table: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server says that it is a node, in answer to the same statement."""
    told = (
        "SELECT 'wsrep_on' AS variable_name, 'ON' AS value "
        "UNION ALL SELECT 'wsrep_provider', '/usr/lib/galera/libgalera_smm.so'"
    )

    async def start(db: Database) -> list[str]:
        described = spec(table, kind=kind)
        for statement in create_table(get_dialect(db.dialect), described):
            await db.execute(statement)
        app = Service("service", Broker(db))

        @subscriber(InboxQueue(described, "queue", str))
        async def handle(text: str) -> None: ...

        app.include(handle)
        async with app.running():
            pass
        return [finding.text for finding in await check_service(app)]

    expected = WARNED[kind]
    for is_node in (False, True):
        caplog.clear()
        if is_node:
            monkeypatch.setattr(servers, "_WSREP", Statement("server kind", told))
            table += " node"
        findings = with_database(start)
        records = [
            record.getMessage()
            for record in caplog.records
            if record.levelno == logging.WARNING and "Galera" in record.getMessage()
        ]
        found = [text for text in findings if "Galera" in text]
        assert len(records) == len(found) == (is_node and expected is not None)
        if records and expected is not None:
            assert records[0].startswith("queue 'queue': the server is a node of a Galera cluster")
            assert expected in records[0]
