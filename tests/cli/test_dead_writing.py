"""`inboxkit dead requeue` and `dead purge`, also beside services that have rows in work."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import psycopg
import pymysql
import pytest
from cli_kit import (
    HOUR,
    Cli,
    Mail,
    dialect_of,
    factory,
    lease_spec,
    make,
    now,
    on,
    put,
    rows,
)

from inboxkit import Broker, Column, Database, InboxQueue, InboxSpec, Service, subscriber
from inboxkit._db.mysql_url import read_target

LONG_AGO = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
IN_WORK = "in work, or locked by somebody: left alone"


def service(spec: InboxSpec, dead: str = "mails.dead") -> Any:
    return factory(InboxQueue(spec, "mails", Mail), dead={"mails": dead}, control=False)


def requeue(cli: Cli, made: Any, url: str, *more: str, status: int = 0) -> Any:
    return cli.json("dead", "requeue", cli.module(service=made), "--url", url, *more, status=status)


def purge(cli: Cli, made: Any, url: str, *more: str, status: int = 0) -> Any:
    return cli.json("dead", "purge", cli.module(service=made), "--url", url, *more, status=status)


def test_a_requeued_row_is_as_one_that_was_never_tried(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table, columns=(Column("note", type=str),))
    make(db_url, spec)
    later = now() + timedelta(days=7)
    common = {"group": "mails.dead", "attempt": 4, "partition_key": "k\N{SNOWMAN}", "note": "n"}
    headers = {"trace": "a'\"b"}
    ids = put(
        db_url,
        spec,
        {**common, "retry_after": LONG_AGO, "headers": headers, "priority": 7},
        {**common, "retry_after": later, "payload": Mail("later")},
        {**common, "locked_until": LONG_AGO},
    )
    kept = ("id", "priority", "account", "headers", "payload", "note")
    before = rows(db_url, spec, *kept)
    first_due = rows(db_url, spec, "due")[0]
    asked = now()
    answer = requeue(cli, service(spec), db_url, "--all")
    assert answer == {
        "action": "requeue",
        "dead_letter": "mails.dead",
        "count": 3,
        "to": "mails",
        "left": [],
    }
    assert rows(db_url, spec, *kept) == before
    assert rows(db_url, spec, "name", "attempt", "locked") == [("mails", 1, None)] * 3
    dues = [due for (due,) in rows(db_url, spec, "due")]
    assert (dues[0],) == first_due, "an old row keeps its place"
    written = datetime.fromisoformat(dues[1]) if isinstance(dues[1], str) else dues[1]
    written = written if written.tzinfo else written.replace(tzinfo=UTC)
    assert asked - timedelta(seconds=1) <= written <= now(), "one that was for later is due now"
    assert [id for (id,) in rows(db_url, spec, "id")] == ids


def test_a_requeued_row_of_a_fifo_group_comes_before_newer_ones(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", priority=False, headers=False, fifo=True)
    make(sqlite_url, spec)
    old = {"group": "mails.dead", "retry_after": LONG_AGO, "attempt": 4, "payload": Mail("old")}
    put(sqlite_url, spec, old, {"group": "mails", "payload": Mail("new")})
    requeue(cli, service(spec), sqlite_url, "--id", "1")
    seen: list[str] = []

    async def serve(database: Database) -> None:
        app, both = Service("mailer", Broker(database)), anyio.Event()

        @subscriber(InboxQueue(spec, "mails", Mail))
        async def handle(mail: Mail) -> None:
            seen.append(mail.to)
            if len(seen) == 2:
                both.set()

        app.include(handle)
        async with app.running():
            await both.wait()

    on(sqlite_url, serve)
    assert seen == ["old", "new"]


def test_more_rows_than_a_batch_go_and_those_in_work_stay(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table)
    make(db_url, spec)

    async def fill(database: Database) -> None:
        from inboxkit import insert_rows

        new = [spec.of(Mail("x"), name="mails.dead") for _ in range(1_203)]
        async with database.transaction() as tx:
            await insert_rows(tx, *new)
            quote = dialect_of(db_url).quote
            soon = now() + HOUR
            is_text = database.dialect == "sqlite"
            until = soon.isoformat(timespec="microseconds") if is_text else soon
            await tx.execute(
                f"UPDATE {quote(table)} SET locked = $1 WHERE id IN (1, 600, 1203)", until
            )

    on(db_url, fill)
    answer = requeue(cli, service(spec), db_url, "--all")
    assert answer["count"] == 1_200
    assert answer["left"] == [{"id": id, "reason": IN_WORK} for id in (1, 600, 1203)]
    assert [row for row in rows(db_url, spec, "id", "name") if row[1] != "mails"] == [
        (id, "mails.dead") for id in (1, 600, 1203)
    ]
    assert requeue(cli, service(spec), db_url, "--id", "600", status=1)["count"] == 0


def test_ten_thousand_rows(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    import sqlite3

    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as database:
        database.executemany(
            "INSERT INTO jobs (name, priority, account, headers, payload, attempt) "
            "VALUES ('mails.dead', 1, 'k', '{}', ?, 4)",
            [(b"{}",)] * 10_001,
        )
    database.close()
    name = cli.module(service=service(spec))
    text = cli.run("stats", name, "--url", sqlite_url).stdout
    assert "10000+" in text
    assert requeue(cli, service(spec), sqlite_url, "--all", "--limit", "9999")["count"] == 9_999
    assert requeue(cli, service(spec), sqlite_url, "--all")["count"] == 2
    assert {tuple(row) for row in rows(sqlite_url, spec, "name", "attempt")} == {("mails", 1)}


def test_a_limit_and_an_age_choose(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    dead = {"group": "mails.dead"}
    put(
        db_url,
        spec,
        {**dead, "retry_after": now() - timedelta(hours=3)},
        {**dead, "retry_after": now() - timedelta(hours=2)},
        {**dead, "retry_after": now() - timedelta(minutes=1)},
        {"group": "mails", "retry_after": LONG_AGO},
    )
    assert purge(cli, service(spec), db_url, "--older-than", "1h", "--limit", "1")["count"] == 1
    assert [id for (id,) in rows(db_url, spec, "id")] == [2, 3, 4]
    assert purge(cli, service(spec), db_url, "--older-than", "90m")["count"] == 1
    assert purge(cli, service(spec), db_url, "--older-than", "7d")["count"] == 0
    assert [id for (id,) in rows(db_url, spec, "id")] == [3, 4]


WRONG = {
    "nothing chosen": ([], "say which dead letters: --all, --id"),
    "two choices": (["--all", "--id", "1"], "one of them"),
    "no age": (["--older-than", "soon"], "'soon' is no length of time; write 90s"),
    "no id": (["--id", "x"], "has ids of type int, and 'x' is none"),
    "no rows": (["--all", "--limit", "0"], "0 is not in the range"),
    "another queue": (["--all", "--queue", "other"], "has no dead letter 'other'"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("command", ["requeue", "purge"])
def test_what_is_asked_wrongly_changes_nothing(
    case: str, command: str, cli: Cli, sqlite_url: str
) -> None:
    arguments, text = WRONG[case]
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "mails.dead"})
    name = cli.module(service=service(spec))
    result = cli.run("dead", command, name, "--url", sqlite_url, *arguments, status=2)
    assert text in result.stderr
    assert rows(sqlite_url, spec, "name") == [("mails.dead",)]


def test_an_age_needs_due_times(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", retry_after=False)
    make(sqlite_url, spec)
    arguments = (cli.module(service=service(spec)), "--url", sqlite_url, "--older-than", "1d")
    assert "no retry_after column" in cli.run("dead", "purge", *arguments, status=2).stderr


@pytest.mark.parametrize("command", [requeue, purge])
def test_ids_are_answered_for_one_by_one(command: Any, cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    held = {"group": "mails.dead", "locked_until": now() + HOUR}
    put(db_url, spec, {"group": "mails.dead"}, held, {"group": "mails"})
    ids = [argument for id in (1, 2, 3, 99) for argument in ("--id", str(id))]
    answer = command(cli, service(spec), db_url, *ids, status=1)
    assert answer["count"] == 1
    assert answer["left"] == [
        {"id": 2, "reason": IN_WORK},
        {"id": 3, "reason": "no such dead letter"},
        {"id": 99, "reason": "no such dead letter"},
    ]


def test_what_was_done_is_told_in_lines(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    held = {"group": "mails.dead", "locked_until": now() + HOUR}
    put(sqlite_url, spec, {"group": "mails.dead"}, {"group": "mails.dead"}, held)
    arguments = (cli.module(service=service(spec)), "--url", sqlite_url)
    text = cli.run("dead", "requeue", *arguments, "--id", "1").stdout
    assert text == "requeued 1 dead letter of 'mails.dead' to 'mails'\n"
    text = cli.run("dead", "purge", *arguments, "--all").stdout
    assert text == f"purged 1 dead letter of 'mails.dead'\nleft id 3: {IN_WORK}\n"


class Two:
    """Two queues with one dead letter."""

    def __init__(self, table: str) -> None:
        self.spec = lease_spec(table)
        queues = [InboxQueue(self.spec, name, Mail) for name in ("a", "b", "c")]
        self.service = factory(*queues, dead={"a": "dead", "b": "dead"}, control=False)


def test_with_several_sources_the_destination_must_be_named(cli: Cli, sqlite_url: str) -> None:
    two = Two("jobs")
    make(sqlite_url, two.spec)
    put(sqlite_url, two.spec, {"group": "dead"}, {"group": "dead"})
    arguments = (cli.module(service=two.service), "--url", sqlite_url)
    text = cli.run("dead", "requeue", *arguments, "--all", status=2).stderr
    assert "'dead' is the dead letter of several queues ('a', 'b'); say which by --to" in text
    text = cli.run("dead", "requeue", *arguments, "--all", "--to", "x", status=2).stderr
    assert "cannot go to 'x'; they can go to 'a', 'b', 'c'" in text
    assert requeue(cli, two.service, sqlite_url, "--id", "1", "--to", "b")["to"] == "b"
    assert requeue(cli, two.service, sqlite_url, "--id", "2", "--to", "c")["to"] == "c"
    assert [name for (name,) in rows(sqlite_url, two.spec, "name")] == ["b", "c"]
    purge(cli, two.service, sqlite_url, "--all")


def test_with_several_dead_letters_one_must_be_named(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    queues = [InboxQueue(spec, name, Mail) for name in ("a", "b")]
    made = factory(*queues, dead={"a": "a.dead", "b": "b.dead"}, control=False)
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "a.dead"}, {"group": "b.dead"})
    arguments = (cli.module(service=made), "--url", sqlite_url, "--all")
    text = cli.run("dead", "purge", *arguments, status=2).stderr
    assert "has several dead letters; name one by --queue: 'a.dead', 'b.dead'" in text
    assert purge(cli, made, sqlite_url, "--all", "--queue", "b")["dead_letter"] == "b.dead"
    assert rows(sqlite_url, spec, "name") == [("a.dead",)]


def test_a_service_without_dead_letters_says_so(cli: Cli, sqlite_url: str) -> None:
    made = factory(InboxQueue(lease_spec("jobs"), "mails", Mail), control=False)
    arguments = (cli.module(service=made), "--url", sqlite_url, "--all")
    assert "has no dead letters" in cli.run("dead", "purge", *arguments, status=2).stderr


def test_dead_letters_of_every_group_go_back_to_their_own(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    groups = ["acme.dead", "é.dead", "acme.dead", "acme", "dead"]
    put(db_url, spec, *[{"group": group, "attempt": 4} for group in groups])

    def made(url: str) -> Service:
        app = Service("mailer", Broker(url))

        @subscriber(InboxQueue.every_group(spec, Mail))
        async def handle(mail: Mail) -> None: ...

        app.include(handle, max_attempts=3, dead_letter="{group}.dead")
        return app

    assert requeue(cli, made, db_url, "--all")["count"] == 3
    assert [tuple(row) for row in rows(db_url, spec, "name", "attempt")] == [
        ("acme", 1),
        ("é", 1),
        ("acme", 1),
        ("acme", 4),
        ("dead", 4),
    ]


PLAIN = {"group": False, "partition_key": False}


def test_between_tables_every_column_goes_back_and_a_live_id_stays(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table, columns=(Column("note", type=str),), **PLAIN)
    dead = lease_spec(f"{table} dead", columns=(Column("note", type=str),), **PLAIN)
    make(db_url, spec, dead)
    row = {"attempt": 4, "retry_after": LONG_AGO, "headers": {"a": "b"}, "note": "n"}
    put(db_url, spec, {"note": "live"})
    put(db_url, dead, row, row, {**row, "locked_until": now() + HOUR})
    before = rows(db_url, dead, "id", "priority", "headers", "payload", "note", "due")
    made = service(spec, dead.table)
    answer = requeue(cli, made, db_url, "--all", status=1)
    assert answer["count"] == 1
    assert answer["left"] == [
        {"id": 3, "reason": IN_WORK},
        {"id": 1, "reason": f"table {table!r} has a row of this id: nothing was changed"},
    ]
    assert [id for (id,) in rows(db_url, dead, "id")] == [1, 3]
    live, back = rows(db_url, spec, "id", "priority", "headers", "payload", "note", "due")
    assert (live[0], live[4]) == (1, "live")
    assert tuple(back) == tuple(before[1])
    assert rows(db_url, spec, "attempt", "locked")[1] == (1, None)
    assert purge(cli, made, db_url, "--all")["count"] == 1
    assert [id for (id,) in rows(db_url, dead, "id")] == [3]


def test_a_row_that_a_unique_index_refuses_does_not_keep_the_others(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table)
    make(db_url, spec)

    async def add_index(database: Database) -> None:
        quoted = dialect_of(db_url).quote(table)
        await database.execute(f"CREATE UNIQUE INDEX once ON {quoted} (name, account)")

    on(db_url, add_index)
    put(db_url, spec, {"group": "mails", "partition_key": "b"})
    put(db_url, spec, *[{"group": "mails.dead", "partition_key": key} for key in "abc"])
    answer = requeue(cli, service(spec), db_url, "--all", status=1)
    assert answer["count"] == 2
    ((left),) = answer["left"]
    assert left["id"] == 3
    assert "requeue" in left["reason"]
    names = [tuple(row) for row in rows(db_url, spec, "name", "account")]
    assert names == [("mails", "b"), ("mails", "a"), ("mails.dead", "b"), ("mails", "c")]


def test_finished_rows_are_no_dead_letters(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", processed_at=Column("done"))
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "mails.dead", "processed_at": now()}, {"group": "mails.dead"})
    assert requeue(cli, service(spec), sqlite_url, "--all")["count"] == 1
    assert [name for (name,) in rows(sqlite_url, spec, "name")] == ["mails.dead", "mails"]


@contextmanager
def session(url: str) -> Iterator[Any]:
    """Somebody else's session, in a transaction."""
    if url.startswith("postgres"):
        with psycopg.connect(url) as postgres:
            yield postgres.cursor()
        return
    target = read_target(f"mysql://{url.partition('://')[2]}")
    connection: Any = pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        database=target.database,
        ssl_disabled=True,
        autocommit=False,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield cursor


@pytest.fixture(params=["postgres", "mariadb", "mysql"])
def server_url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"shared_{request.param}_url")
    return found


@pytest.mark.parametrize("form", ["row lock", "lease"])
def test_a_row_that_a_handlers_session_holds_is_left_alone_and_nothing_waits(
    form: str, cli: Cli, server_url: str, table: str
) -> None:
    spec = lease_spec(table, **({"locked_until": False} if form == "row lock" else {}))
    make(server_url, spec)
    put(server_url, spec, {"group": "mails.dead"}, {"group": "mails.dead"})
    quoted = dialect_of(server_url).quote(table)
    with session(server_url) as cursor:
        cursor.execute(f"SELECT id FROM {quoted} WHERE id = 1 FOR UPDATE")
        cursor.fetchall()
        for command in (requeue, purge):
            answer = command(cli, service(spec), server_url, "--id", "1", status=1)
            assert answer["left"] == [{"id": 1, "reason": IN_WORK}]
        assert purge(cli, service(spec), server_url, "--all")["count"] == 1
    assert [id for (id,) in rows(server_url, spec, "id")] == [1]


KEY = "mail-{id}"


def test_a_row_whose_advisory_lock_is_held_is_left_alone(
    cli: Cli, server_url: str, table: str
) -> None:
    key = f"{table}-{{id}}"
    spec = lease_spec(table, locked_until=False, advisory_lock=key)
    make(server_url, spec)
    put(server_url, spec, *[{"group": "mails.dead"}] * 3)
    with session(server_url) as cursor:
        if server_url.startswith("postgres"):
            hashed = f"hashtextextended('{table}-2' COLLATE \"C\", 0)"
            cursor.execute(f"SELECT pg_advisory_lock({hashed})")
        else:
            cursor.execute(f"SELECT GET_LOCK(CONCAT(LOWER(DATABASE()), '.', '{table}-2'), 0)")
        cursor.fetchall()
        answer = requeue(cli, service(spec), server_url, "--all")
        assert answer["count"] == 2
        assert answer["left"] == [{"id": 2, "reason": IN_WORK}]
    assert requeue(cli, service(spec), server_url, "--all")["count"] == 1


def test_on_sqlite_the_process_that_keeps_the_keys_keeps_others_out(
    cli: Cli, sqlite_url: str
) -> None:
    spec = lease_spec("jobs", locked_until=False, advisory_lock=KEY)
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "mails.dead"})
    found = os.stat(sqlite_url.removeprefix("sqlite:///"))
    beside = f"{tempfile.gettempdir()}/inboxkit-{found.st_dev:x}-{found.st_ino:x}.lock"
    descriptor = os.open(beside, os.O_RDONLY | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        arguments = (cli.module(service=service(spec)), "--url", sqlite_url, "--all")
        text = cli.run("dead", "purge", *arguments, status=1).stderr
        assert "another process has the SQLite file" in text
    finally:
        os.close(descriptor)
        os.unlink(beside)
    assert purge(cli, service(spec), sqlite_url, "--all")["count"] == 1


def test_a_table_in_another_schema_is_the_one_that_is_written(
    cli: Cli, table: str, shared_postgres_url: str
) -> None:
    there = lease_spec(table, schema="Jobs-EU")
    here = lease_spec(table)

    async def make_schema(database: Database) -> None:
        await database.execute('CREATE SCHEMA IF NOT EXISTS "Jobs-EU"')

    on(shared_postgres_url, make_schema)
    make(shared_postgres_url, here, there)
    for spec in (here, there):
        put(shared_postgres_url, spec, *[{"group": "mails.dead"}] * 2)
    made = service(there)
    name = cli.module(service=made)
    assert cli.json("stats", name, "--url", shared_postgres_url)["queues"][0]["dead"] == 2
    assert len(cli.json("dead", "list", name, "--url", shared_postgres_url)["dead"]) == 2
    requeue(cli, made, shared_postgres_url, "--id", "1")
    purge(cli, made, shared_postgres_url, "--all")
    assert rows(shared_postgres_url, there, "name") == [("mails",)]
    assert rows(shared_postgres_url, here, "name") == [("mails.dead",)] * 2


ODD = 'it\'s; "a`b" a%b$1 -- :x ? \N{SNOWMAN} order'


def test_any_identifier_works(cli: Cli, db_url: str) -> None:
    names = {
        f"{role}": Column(f"{ODD}{n}")
        for n, role in enumerate(("group", "attempt", "locked_until"))
    }
    names["attempt"] = Column(f"{ODD}1", generated=True)
    spec = lease_spec(ODD, **names)
    make(db_url, spec)
    dead = {"group": f"{ODD}.dead"}
    put(db_url, spec, dead, dead)
    made = factory(InboxQueue(spec, ODD, Mail), dead={ODD: f"{ODD}.dead"}, control=False)
    name = cli.module(service=made)
    assert cli.json("stats", name, "--url", db_url)["queues"][0]["dead"] == 2
    assert len(cli.json("dead", "list", name, "--url", db_url)["dead"]) == 2
    assert requeue(cli, made, db_url, "--id", "1", "--queue", ODD)["to"] == ODD
    assert purge(cli, made, db_url, "--all")["count"] == 1
    assert rows(db_url, spec, f"{ODD}0") == [(ODD,)]
    make(db_url)


def test_a_missing_dead_letter_table_is_told(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", **PLAIN)
    make(sqlite_url, spec)
    arguments = (cli.module(service=service(spec, "nowhere")), "--url", sqlite_url)
    for command in ("list",), ("purge", "--all"), ("requeue", "--all"), ("show", "1"):
        text = cli.run("dead", command[0], arguments[0], *command[1:], *arguments[1:], status=1)
        assert "dead-letter table 'nowhere' does not exist" in text.stderr
    assert "does not exist" in cli.run("stats", *arguments, status=1).stderr


def test_on_a_terminal_it_asks_unless_told_not_to(
    cli: Cli, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    put(sqlite_url, spec, *[{"group": "mails.dead"}] * 3)
    monkeypatch.setattr("inboxkit._cli.dead_writing._is_terminal", lambda: True)
    arguments = (
        "dead",
        "purge",
        cli.module(service=service(spec)),
        "--url",
        sqlite_url,
        "--id",
        "1",
    )
    refused = cli.run(*arguments, status=1, input="n\n")
    assert "purge 1 dead letter of 'mails.dead'? [y/N]" in refused.stderr
    assert len(rows(sqlite_url, spec, "id")) == 3
    assert "purged 1" in cli.run(*arguments, "--id", "2", "--limit", "1", input="y\n").stdout
    assert "[y/N]" not in cli.run(*arguments, "--yes", status=1).output
