"""`inboxkit ddl`: what it prints can be run, and then `check` finds nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import psycopg
import pymysql
import pytest
from cli_kit import CONTROL, Cli, Mail, factory, lease_spec, on, subscriber_of

from inboxkit import Broker, Column, Database, InboxQueue, InboxSpec, Service
from inboxkit._db.mysql_url import read_target
from inboxkit._sql.dialect import get_dialect


def run_script(url: str, script: str) -> None:
    """As a person would: all of it at once, by the database's own client library."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executescript(script)
        connection.close()
    elif url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as postgres:
            postgres.execute(script.encode())
    else:
        target = read_target(f"mysql://{url.partition('://')[2]}")
        admin: Any = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            ssl_disabled=True,
            client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
        )
        with admin, admin.cursor() as cursor:
            cursor.execute(script)
            while cursor.nextset():
                pass


def drop(url: str, *tables: str) -> None:
    async def work(database: Database) -> None:
        dialect = get_dialect(database.dialect)
        for table in tables:
            await database.execute(f"DROP TABLE IF EXISTS {dialect.quote(table)}")

    on(url, work)


FIFO = {"priority": False, "headers": False, "fifo": True}
PLAIN = {"group": False, "priority": False, "retry_after": False, "partition_key": False}


def everything(table: str) -> tuple[list[InboxQueue[Any, Any]], dict[str, str], list[str]]:
    """Queues over tables of every shape, their dead letters, and all the tables' names."""
    specs = {
        "whole": lease_spec(table),
        "fifo": lease_spec(f"{table} fifo", **FIFO),
        "plain": lease_spec(f"{table} plain", **PLAIN),
        "kept": lease_spec(f"{table} kept", processed_at=Column("done"), group=False),
        "least": InboxSpec(
            f"{table} least", id=Column("id", type=str), locked_until=Column("lease")
        ),
    }
    queues: list[InboxQueue[Any, Any]] = [
        InboxQueue(spec, name, Mail if spec.payload else None)  # type: ignore[arg-type]
        for name, spec in specs.items()
    ]
    dead = {"whole": "whole.dead", "fifo": "fifo.dead", "plain": f"{table} plain dead"}
    tables = [spec.table for spec in specs.values()]
    return queues, dead, [*tables, f"{table} plain dead", CONTROL]


@pytest.mark.parametrize("if_missing", [False, True], ids=["plain", "if not exists"])
def test_the_printed_script_runs_and_check_is_then_clean(
    cli: Cli, db_url: str, table: str, if_missing: bool
) -> None:
    queues, dead, tables = everything(table)

    def service(url: str) -> Service:
        app = Service("mailer", Broker(url), control_table=CONTROL)
        for queue in queues:
            if queue.name == "least":
                app.include(row_handler(queue))
                continue
            letter: dict[str, Any] = {}
            if queue.name in dead:
                letter = {"max_attempts": 3, "dead_letter": dead[queue.name]}
            app.include(subscriber_of(queue), **letter)
        return app

    drop(db_url, *tables)
    name = cli.module(service=service)
    before = cli.json("check", name, "--url", db_url, status=1)
    assert [one["severity"] for one in before["findings"]].count("error") == 6
    options = ("--if-not-exists",) if if_missing else ()
    script = cli.run("ddl", name, "--url", db_url, *options).stdout
    run_script(db_url, script)
    if if_missing:
        run_script(db_url, script)
    after = cli.json("check", name, "--url", db_url)
    assert after["ok"]
    assert {one["severity"] for one in after["findings"]} == {"note"}
    assert all("no cap" in one["text"] for one in after["findings"])
    drop(db_url, *tables)


def factory_of_rows(queue: InboxQueue[Any, Any]) -> Any:
    """A service of one queue, whatever its rows hold."""

    def service(url: str) -> Service:
        app = Service("mailer", Broker(url))
        app.include(row_handler(queue) if queue.name == "least" else subscriber_of(queue))
        return app

    return service


def row_handler(queue: InboxQueue[Any, Any]) -> Any:
    from collections.abc import Mapping

    from inboxkit import subscriber

    @subscriber(queue)
    async def handle(row: Mapping[str, Any]) -> None: ...

    return handle


@pytest.mark.parametrize("shape", ["whole", "fifo", "plain", "kept", "least"])
def test_if_not_exists_leaves_out_no_index(cli: Cli, db_url: str, table: str, shape: str) -> None:
    queues, _, tables = everything(table)
    (queue,) = [queue for queue in queues if queue.name == shape]
    name = f"{cli.module(make=factory_of_rows(queue))}:make"
    found = []
    for options in ((), ("--if-not-exists",)):
        drop(db_url, *tables)
        run_script(db_url, cli.run("ddl", name, "--url", db_url, *options).stdout)
        found.append(on(db_url, lambda database: database.describe(queue.spec)))
    drop(db_url, *tables)
    assert set(found[0].indexes) == set(found[1].indexes)
    assert found[0].columns == found[1].columns


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql", "mariadb"])
def test_a_named_dialect_needs_no_url(
    cli: Cli, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{cli.module(make=factory(InboxQueue(lease_spec('jobs'), 'mails', Mail)))}:make"
    kind = {"mariadb": "mysql"}.get(dialect, dialect)
    without = cli.json("ddl", name, "--dialect", dialect)
    assert without["dialect"] == kind
    assert len(without["statements"]) == (3 if kind == "mysql" else 4)
    monkeypatch.setenv("INBOXKIT_URL", "sqlite:///environment.db")
    assert cli.json("ddl", name, "--dialect", dialect) == without
    monkeypatch.delenv("INBOXKIT_URL")
    assert "give --url" in cli.run("ddl", name, status=2).stderr


def test_a_dialect_can_be_named_and_nothing_connects(cli: Cli) -> None:
    make = factory(InboxQueue(lease_spec("jobs"), "mails", Mail))
    name = f"{cli.module(make=make)}:make"
    url = ("--url", "postgresql://nowhere.invalid/db")
    assert "AUTO_INCREMENT" in cli.run("ddl", name, *url, "--dialect", "mariadb").stdout
    assert "AUTOINCREMENT" in cli.run("ddl", name, *url, "--dialect", "sqlite").stdout
    assert cli.json("ddl", name, *url)["dialect"] == "postgres"
    assert cli.json("ddl", name, *url, "--dialect", "mariadb")["dialect"] == "mysql"
    cli.run("ddl", name, *url, "--dialect", "oracle", status=2)


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql", "mariadb"])
def test_with_a_dialect_a_function_of_the_url_needs_none(
    dialect: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INBOXKIT_URL", raising=False)
    queue: InboxQueue[Any, Any] = InboxQueue(lease_spec("url_jobs"), "jobs", Mail)
    name = cli.module(make=factory(queue))
    assert "CREATE TABLE" in cli.run("ddl", f"{name}:make", "--dialect", dialect).output
    assert "give --url" in cli.run("ddl", f"{name}:make", status=2).output


def test_each_statement_says_what_it_is_for(cli: Cli, sqlite_url: str) -> None:
    make = factory(
        InboxQueue(lease_spec("jobs"), "mails", Mail),
        InboxQueue(lease_spec("lines", **FIFO), "line", Mail),
    )
    document = cli.json("ddl", f"{cli.module(make=make)}:make", "--url", sqlite_url)
    assert [(one["table"], one["purpose"]) for one in document["statements"]] == [
        ("jobs", "queue 'mails'"),
        ("jobs", "claim: rows that wait, in claim order"),
        ("jobs", "lease expiry: rows in work, by the end of their leases"),
        ("lines", "queue 'line'"),
        ("lines", "FIFO: the head of each group, also while it is in work"),
        ("lines", "lease expiry: rows in work, by the end of their leases"),
        (CONTROL, "which queues are paused"),
    ]
    assert all(one["sql"].startswith("CREATE ") for one in document["statements"])


def test_a_table_of_routes_and_one_described_twice_are_printed_once(cli: Cli) -> None:
    whole = lease_spec("jobs")
    part = replace(whole, headers=None, columns=(Column("note", type=str),))

    def service(url: str) -> Service:
        app = Service("mailer", Broker(url))
        app.include(subscriber_of(InboxQueue(part, "a", Mail)))
        app.include(subscriber_of(InboxQueue(whole, "b", Mail)))
        app.broker.route("other", lease_spec("others"))
        app.broker.route("more.*", lease_spec("more"))
        return app

    document = cli.json("ddl", cli.module(service=service), "--url", "postgresql://x/db")
    made = [one["sql"] for one in document["statements"] if one["sql"].startswith("CREATE TABLE")]
    assert [text.partition(" (")[0] for text in made] == [
        'CREATE TABLE "jobs"',
        'CREATE TABLE "others"',
        'CREATE TABLE "more"',
    ]
    assert '"headers" jsonb' in made[0]
    assert '"note" text' in made[0]


LONGEST = {"postgres": 63, "mysql": 64}


@pytest.mark.parametrize("dialect", LONGEST)
@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_name_that_would_be_cut_is_refused(dialect: str, letter: str, cli: Cli) -> None:
    size = len(letter.encode()) if dialect == "postgres" else 1
    table = letter * (LONGEST[dialect] // size + 1)
    make = factory(InboxQueue(lease_spec(table), "mails", Mail))
    arguments = (f"{cli.module(make=make)}:make", "--url", "sqlite:///x.db", "--dialect", dialect)
    result = cli.run("ddl", *arguments, status=1)
    assert "shorten it" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("letter", ["x", "é"])
def test_indexes_of_long_names_that_begin_alike_have_names_of_their_own(
    letter: str, cli: Cli, shared_postgres_url: str
) -> None:
    begin = letter * (60 // len(letter.encode()))
    specs = [lease_spec(f"{begin}{end}") for end in ("a", "b")]
    queues = [InboxQueue(spec, f"q{n}", Mail) for n, spec in enumerate(specs)]
    name = f"{cli.module(make=factory(*queues, control=False))}:make"
    tables = [spec.table for spec in specs]
    drop(shared_postgres_url, *tables)
    run_script(shared_postgres_url, cli.run("ddl", name, "--url", shared_postgres_url).stdout)
    found = cli.json("check", name, "--url", shared_postgres_url)["findings"]
    assert {one["severity"] for one in found} <= {"note"}
    drop(shared_postgres_url, *tables)


ODD = 'it\'s; "a`b" a%b$1 -- :x\n\N{SNOWMAN} order'


def test_any_identifier_is_printed_so_that_it_runs(cli: Cli, db_url: str) -> None:
    odd = ODD.replace("\n", " ") if db_url.startswith("m") else ODD
    spec = lease_spec(odd, group=Column(odd), columns=(Column("select", type=str),))
    make = factory(InboxQueue(spec, odd, Mail), control=False)
    name = f"{cli.module(make=make)}:make"
    drop(db_url, odd)
    run_script(db_url, cli.run("ddl", name, "--url", db_url).stdout)
    found = cli.json("check", name, "--url", db_url)["findings"]
    assert [one["severity"] for one in found] == ["note"]
    drop(db_url, odd)
