"""`inboxkit dead list` and `dead show`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from cli_kit import HOUR, Cli, Mail, factory, lease_spec, make, now, put

from inboxkit import Broker, Column, InboxQueue, InboxSpec, Service, subscriber

DUE = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def service(spec: InboxSpec, dead: str = "mails.dead") -> Any:
    return factory(InboxQueue(spec, "mails", Mail), dead={"mails": dead}, control=False)


def test_dead_letters_are_listed_without_their_payloads(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    first, second, _ = put(
        db_url,
        spec,
        {"group": "mails.dead", "retry_after": DUE, "attempt": 4, "payload": Mail("SECRET")},
        {"group": "mails.dead", "retry_after": DUE, "attempt": 4, "locked_until": now() + HOUR},
        {"group": "mails", "attempt": 1},
    )
    name = cli.module(service=service(spec))
    assert cli.json("dead", "list", name, "--url", db_url) == {
        "dead": [
            {
                "id": id,
                "dead_letter": "mails.dead",
                "table": table,
                "group": "mails.dead",
                "attempt": 4,
                "due": "2020-01-02T03:04:05.678901+00:00",
                "in_work": in_work,
            }
            for id, in_work in ((first, False), (second, True))
        ],
        "more": False,
    }
    result = cli.run("dead", "list", name, "--url", db_url)
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["id", "dead", "letter", "group", "attempt", "due"]
    assert [line.split()[0] for line in lines] == [str(first), str(second)]
    assert lines[1].endswith("in work")
    assert "SECRET" not in result.output


def test_a_long_list_is_cut_and_says_so(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    put(sqlite_url, spec, *[{"group": "mails.dead"} for _ in range(5)])
    arguments = ("dead", "list", cli.module(service=service(spec)), "--url", sqlite_url)
    document = cli.json(*arguments, "--limit", "2")
    assert ([row["id"] for row in document["dead"]], document["more"]) == ([1, 2], True)
    assert cli.json(*arguments, "--limit", "5")["more"] is False
    assert "and more; --limit 4" in cli.run(*arguments, "--limit", "2").stdout
    cli.run(*arguments, "--limit", "0", status=2)


def test_nothing_dead_is_said_so(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    name = cli.module(service=service(spec))
    assert cli.run("dead", "list", name, "--url", sqlite_url).stdout == "no dead letters\n"
    assert cli.json("dead", "list", name, "--url", sqlite_url) == {"dead": [], "more": False}


def test_a_dead_letter_is_named_by_itself_or_by_its_queue(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "a.dead"}, {"group": "b.dead"})
    queues = [InboxQueue(spec, name, Mail) for name in ("a", "b", "c")]
    made = factory(*queues, dead={"a": "a.dead", "b": "b.dead"}, control=False)
    arguments = ("dead", "list", cli.module(service=made), "--url", sqlite_url)

    def ids(*more: str) -> list[int]:
        return [row["id"] for row in cli.json(*arguments, *more)["dead"]]

    assert ids() == [1, 2]
    assert ids("--queue", "a.dead") == ids("--queue", "a") == [1]
    assert ids("--queue", "b") == [2]
    for wrong in ("c", "d"):
        text = cli.run(*arguments, "--queue", wrong, status=2).stderr
        assert f"has no dead letter {wrong!r}" in text
        assert "it has 'a.dead', 'b.dead'" in text


def test_a_dead_letter_is_shown_with_all_that_it_holds(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table, columns=(Column("last_error", type=str),))
    make(db_url, spec)
    (id,) = put(
        db_url,
        spec,
        {
            "group": "mails.dead",
            "retry_after": DUE,
            "attempt": 4,
            "partition_key": "k\n1",
            "headers": {"trace": "a\x1b[31mb"},
            "payload": Mail("someone@example.com"),
            "last_error": "first line\nsecond\x1b]0;title\x07",
        },
    )
    arguments = ("dead", "show", cli.module(service=service(spec)), str(id), "--url", db_url)
    assert cli.json(*arguments) == {
        "id": id,
        "dead_letter": "mails.dead",
        "table": table,
        "group": "mails.dead",
        "attempt": 4,
        "due": DUE.isoformat(),
        "in_work": False,
        "headers": {"trace": "a\x1b[31mb"},
        "payload": '{"to":"someone@example.com"}',
        "error": None,
        "columns": {
            "name": "mails.dead",
            "priority": 5,
            "account": "k\n1",
            "due": DUE.isoformat(),
            "attempt": 4,
            "locked": None,
            "last_error": "first line\nsecond\x1b]0;title\x07",
        },
    }
    shown = cli.run(*arguments).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "    trace: a\\x1b[31mb\n" in shown
    assert "last_error: first line\nsecond\\x1b]0;title\\x07\n" in shown
    assert shown.endswith('payload:\n{"to":"someone@example.com"}\n')


def test_a_huge_error_text_is_cut_for_people_and_whole_for_programs(
    cli: Cli, sqlite_url: str
) -> None:
    spec = lease_spec("jobs", columns=(Column("last_error", type=str),))
    make(sqlite_url, spec)
    text = "boom \x00 " * 40_000
    put(sqlite_url, spec, {"group": "mails.dead", "last_error": text})
    arguments = ("dead", "show", cli.module(service=service(spec)), "1", "--url", sqlite_url)
    shown = cli.run(*arguments).stdout
    assert "boom \\x00 boom" in shown
    assert f"… ({len(text) - 10_000} characters more)" in shown
    assert len(shown) < 25_000
    assert cli.json(*arguments)["columns"]["last_error"] == text


PAYLOADS: dict[str, tuple[bytes, Any, str]] = {
    "no JSON": (b"{", "{", "cannot read the payload"),
    "another message": (b'{"from": 1}', '{"from": 1}', "cannot read the payload"),
    "no text": (b"\xff\x00", {"base64": "/wA="}, "cannot read the payload"),
    "empty": (b"", "", "cannot read the payload"),
}


@pytest.mark.parametrize("case", PAYLOADS)
def test_why_a_payload_cannot_be_read_is_told(case: str, cli: Cli, sqlite_url: str) -> None:
    stored, shown, error = PAYLOADS[case]
    spec = lease_spec("jobs")
    make(sqlite_url, spec)

    import sqlite3

    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as database:
        database.execute(
            "INSERT INTO jobs (name, priority, account, headers, payload) VALUES (?, 1, 'k', '{}', ?)",
            ("mails.dead", stored),
        )
    database.close()
    arguments = ("dead", "show", cli.module(service=service(spec)), "1", "--url", sqlite_url)
    document = cli.json(*arguments)
    assert document["payload"] == shown
    assert error in document["error"]
    assert "error: queue 'mails' cannot read the payload" in cli.run(*arguments).stdout


def test_a_value_that_cannot_be_read_is_shown_as_that(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)

    import sqlite3

    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as database:
        database.execute(
            "INSERT INTO jobs (name, priority, account, headers, payload, due, attempt) "
            "VALUES ('mails.dead', 1, 'k', '[', x'7b7d', 'yesterday', 'x')"
        )
    database.close()
    arguments = ("dead", "show", cli.module(service=service(spec)), "1", "--url", sqlite_url)
    document = cli.json(*arguments)
    assert "expected time text" in document["due"]["error"]
    assert "error" in document["headers"]
    assert "cannot be read: table 'jobs', column 'due'" in cli.run(*arguments).stdout
    cli.run("dead", "list", arguments[2], "--url", sqlite_url)


UNKNOWN = {
    "no such row": ("7", 1, "no dead letter has the id '7'"),
    "no int": ("x", 2, "ids of type int"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_id_that_is_none(case: str, cli: Cli, sqlite_url: str) -> None:
    id, status, text = UNKNOWN[case]
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "mails"})
    arguments = ("dead", "show", cli.module(service=service(spec)), id, "--url", sqlite_url)
    assert text in cli.run(*arguments, status=status).stderr
    live = ("dead", "show", arguments[2], "1", "--url", sqlite_url)
    assert "no dead letter has the id '1'" in cli.run(*live, status=1).stderr


UUIDS = [UUID(int=n) for n in (1, 2**128 - 1)]
IDS: dict[str, tuple[type, list[Any]]] = {
    "text": (str, ["00042", "42", " 42", "", "\N{GRINNING FACE}", "ID", "id", "'; --"]),
    "UUID": (UUID, UUIDS),
    "int": (int, [1, 2**62]),
}


@pytest.mark.parametrize("case", IDS)
def test_ids_keep_their_type_and_value(case: str, cli: Cli, db_url: str, table: str) -> None:
    kind, ids = IDS[case]
    spec = lease_spec(table, id=Column("id", type=kind))
    make(db_url, spec)
    put(db_url, spec, *[{"id": id, "group": "mails.dead"} for id in ids])
    name = cli.module(service=service(spec))
    for id in ids if db_url.startswith("sqlite") else ids[-3:]:
        shown = cli.run("dead", "show", name, "--url", db_url, "--json", "--", str(id)).stdout
        assert json.loads(shown)["id"] == (str(id) if kind is UUID else id)
    one, *rest = ids
    again = cli.json("dead", "requeue", name, "--url", db_url, "--id", str(one))
    assert (again["count"], again["left"]) == (1, [])
    left = cli.json("dead", "list", name, "--url", db_url)["dead"]
    assert {row["id"] for row in left} == {str(id) if kind is UUID else id for id in rest}


def test_ids_that_a_collation_takes_for_one_are_told_apart(
    cli: Cli, table: str, shared_mariadb_url: str
) -> None:
    from cli_kit import on

    spec = lease_spec(table, id=Column("id", type=str))
    make(shared_mariadb_url, spec)

    async def fold(database: Any) -> None:
        await database.execute(
            f"ALTER TABLE `{table}` MODIFY id varchar(255) CHARACTER SET utf8mb4 "
            "COLLATE utf8mb4_general_ci NOT NULL"
        )

    on(shared_mariadb_url, fold)
    put(shared_mariadb_url, spec, {"id": "A", "group": "mails.dead"})
    name = cli.module(service=service(spec))
    cli.run("dead", "show", name, "a", "--url", shared_mariadb_url, status=1)
    found = cli.json("dead", "purge", name, "--id", "a", "--url", shared_mariadb_url, status=1)
    assert found["count"] == 0
    assert len(cli.json("dead", "list", name, "--url", shared_mariadb_url)["dead"]) == 1


def test_an_id_in_several_dead_letters_asks_which(cli: Cli, sqlite_url: str) -> None:
    one, two = lease_spec("one"), lease_spec("two")
    make(sqlite_url, one, two)
    put(sqlite_url, one, {"group": "a.dead"})
    put(sqlite_url, two, {"group": "b.dead"})
    made = factory(
        InboxQueue(one, "a", Mail),
        InboxQueue(two, "b", Mail),
        dead={"a": "a.dead", "b": "b.dead"},
        control=False,
    )
    arguments = ("dead", "show", cli.module(service=made), "1", "--url", sqlite_url)
    text = cli.run(*arguments, status=2).stderr
    assert "dead letters of 'a.dead' and 'b.dead' have the id '1'; name one by --queue" in text
    assert cli.json(*arguments, "--queue", "b")["table"] == "two"


def test_dead_letters_of_every_group_are_found_by_their_shape(
    cli: Cli, db_url: str, table: str
) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    groups = ["acme", "acme.dead", ".dead", "dead", "x.deaddead", "é.dead", "mine.dead.x"]
    put(db_url, spec, *[{"group": group} for group in groups])

    def made(url: str) -> Service:
        app = Service("mailer", Broker(url))

        @subscriber(InboxQueue.every_group(spec, Mail))
        async def handle(mail: Mail) -> None: ...

        app.include(handle, max_attempts=3, dead_letter="{group}.dead")
        return app

    found = cli.json("dead", "list", cli.module(service=made), "--url", db_url)["dead"]
    assert [row["group"] for row in found] == ["acme.dead", ".dead", "é.dead"]
    assert {row["dead_letter"] for row in found} == {"{group}.dead"}


def test_in_row_mode_a_dead_letter_is_its_columns(cli: Cli, sqlite_url: str) -> None:
    spec = lease_spec("jobs", payload=False, columns=(Column("blob", type=bytes, default=b"\xff"),))
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "mails.dead"})

    def made(url: str) -> Service:
        app = Service("mailer", Broker(url))

        @subscriber(InboxQueue(spec, "mails"))
        async def handle(row: Mapping[str, Any]) -> None: ...

        app.include(handle, max_attempts=3, dead_letter="mails.dead")
        return app

    arguments = ("dead", "show", cli.module(service=made), "1", "--url", sqlite_url)
    document = cli.json(*arguments)
    assert (document["payload"], document["error"]) == (None, None)
    assert document["columns"]["blob"] == {"base64": "/w=="}
    assert "blob: b'\\xff'" in cli.run(*arguments).stdout
