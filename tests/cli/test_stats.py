"""`inboxkit stats`: how each queue stands."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_kit import HOUR, Cli, Mail, as_nobody, factory, lease_spec, make, now, put

from inboxkit import Broker, Column, InboxQueue, InboxSpec, Service, subscriber

KEYS = {
    "queue",
    "table",
    "form",
    "at",
    "due",
    "waiting",
    "in_work",
    "expired",
    "dead",
    "at_least",
    "oldest_due",
    "dead_letter",
    "paused",
}
SECOND = timedelta(seconds=1)


def service(spec: InboxSpec, **settings: Any) -> Any:
    queue = InboxQueue(spec, "mails", Mail)
    return factory(queue, dead={"mails": "mails.dead"}, control=False, **settings)


def stats(cli: Cli, made: Any, url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.json("stats", cli.module(service=made), "--url", url)[
        "queues"
    ]
    for queue in found:
        assert queue.keys() == KEYS
        assert datetime.fromisoformat(queue["at"]).utcoffset() == timedelta(0)
    return found


def counts(queue: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(queue[name] for name in ("due", "waiting", "in_work", "expired", "dead"))


def test_rows_are_counted_by_how_they_stand(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    mails, dead = {"group": "mails"}, {"group": "mails.dead"}
    oldest = now() - timedelta(hours=3)
    put(
        db_url,
        spec,
        {**mails, "retry_after": oldest},
        {**mails, "retry_after": now() - SECOND, "priority": 1},
        {**mails, "retry_after": now() + HOUR},
        {**mails, "locked_until": now() + HOUR},
        {**mails, "locked_until": now() + HOUR},
        {**mails, "locked_until": now() - SECOND},
        dead,
        {**dead, "locked_until": now() + HOUR},
        {"group": "other"},
    )
    (queue,) = stats(cli, service(spec), db_url)
    assert counts(queue) == (2, 1, 2, 1, 2)
    found = datetime.fromisoformat(queue["oldest_due"])
    assert abs(found - oldest) < timedelta(milliseconds=1)
    assert (queue["form"], queue["dead_letter"], queue["at_least"]) == ("lease", "mails.dead", [])
    assert (queue["table"], queue["paused"]) == (table, None)
    head, line = cli.run(
        "stats", cli.module(service=service(spec)), "--url", db_url
    ).stdout.splitlines()
    assert head.split() == [
        "queue",
        "due",
        "waiting",
        "in",
        "work",
        "expired",
        "dead",
        "oldest",
        "due",
    ]
    assert line.split() == ["mails", "2", "1", "2", "1", "2", "3", "h", "0", "min", "ago"]


@pytest.mark.parametrize("server", ["postgres", "mariadb", "mysql"])
@pytest.mark.parametrize("form", ["row lock", "advisory lock"])
def test_what_a_form_does_not_show_is_unknown(
    form: str, server: str, cli: Cli, table: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"shared_{server}_url")
    key = "mail-{id}" if form == "advisory lock" else None
    spec = lease_spec(table, locked_until=False, advisory_lock=key)
    make(url, spec)
    put(url, spec, {"group": "mails"}, {"group": "mails", "retry_after": now() + HOUR})
    (queue,) = stats(cli, service(spec), url)
    assert counts(queue) == (1, 1, None, None, 0)
    assert queue["form"] == form
    line = cli.run("stats", cli.module(service=service(spec)), "--url", url).stdout.splitlines()[1]
    assert line.split()[:6] == ["mails", "1", "1", "unknown", "-", "0"]


def test_tables_with_fewer_columns_and_dead_letter_tables(
    cli: Cli, db_url: str, table: str
) -> None:
    less = {"group": False, "retry_after": False, "priority": False, "headers": False}
    spec = lease_spec(table, **less)
    dead = lease_spec(f"{table} dead", **less)
    kept = lease_spec(f"{table} kept", processed_at=Column("done"), **less)
    make(db_url, spec, dead, kept)
    put(db_url, spec, {}, {"locked_until": now() + HOUR})
    put(db_url, dead, {}, {}, {})
    put(db_url, kept, {}, {"processed_at": now()})
    made = factory(
        InboxQueue(spec, "mails", Mail),
        InboxQueue(kept, "kept", Mail),
        dead={"mails": dead.table},
        control=False,
    )
    first, second = stats(cli, made, db_url)
    assert counts(first) == (1, 0, 1, 0, 3)
    assert counts(second) == (1, 0, 0, 0, None)
    assert first["oldest_due"] is second["oldest_due"] is None


def test_every_group_counts_all_but_others(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table)
    make(db_url, spec)
    groups = ["a", "b", "a.dead", "c.dead", ".dead", "own", "own.parked", "a"]
    put(db_url, spec, *[{"group": group} for group in groups])

    def made(url: str) -> Service:
        app = Service("mailer", Broker(url))

        @subscriber(InboxQueue.every_group(spec, Mail, name="all"))
        async def every(mail: Mail) -> None: ...

        @subscriber(InboxQueue(spec, "own", Mail))
        async def own(mail: Mail) -> None: ...

        app.include(every, max_attempts=3, dead_letter="{group}.dead")
        app.include(own, max_attempts=3, dead_letter="own.parked")
        return app

    first, second = stats(cli, made, db_url)
    assert counts(first) == (3, 0, 0, 0, 3)
    assert counts(second) == (1, 0, 0, 0, 1)


def test_paused_queues_say_so(cli: Cli, db_url: str, table: str) -> None:
    spec = lease_spec(table)
    make(db_url, spec, control=True)
    queues = [InboxQueue(spec, name, Mail) for name in ("a", "b")]
    name = cli.module(service=factory(*queues))
    cli.run("pause", name, "b", "--url", db_url)
    found = cli.json("stats", name, "--url", db_url)["queues"]
    assert [queue["paused"] for queue in found] == [False, True]
    assert "b (paused)" in cli.run("stats", name, "--url", db_url).stdout


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_file_that_may_only_be_read_is_counted_where_sqlite_can_read_it(
    journal: str, cli: Cli, open_folder: Path
) -> None:
    folder = open_folder / "of another"
    folder.mkdir()
    path = folder / "inbox.db"
    url = f"sqlite:///{path}"
    spec = lease_spec("jobs")
    make(url, spec)
    put(url, spec, {"group": "mails"}, {"group": "mails.dead"})
    connection = sqlite3.connect(path)
    assert connection.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    connection.close()
    path.chmod(0o444)
    folder.chmod(0o555)
    name = cli.module(service=service(spec))
    try:
        with as_nobody():
            if journal == "delete":
                (queue,) = stats(cli, service(spec), url)
                assert counts(queue) == (1, 0, 0, 0, 1)
                assert len(cli.json("dead", "list", name, "--url", url)["dead"]) == 1
            else:
                text = cli.run("stats", name, "--url", url, status=1).stderr
                assert str(path) in text
                assert "-wal" in text
            purged = cli.run("dead", "purge", name, "--all", "--url", url, status=1).stderr
            assert str(path) in purged
            checked = cli.run("check", name, "--url", url, status=1).output
            assert "cannot be written" in checked or "-wal" in checked
    finally:
        folder.chmod(0o755)


def test_a_missing_file_is_told_and_not_made(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nowhere' / 'inbox.db'}"
    result = cli.run(
        "stats", cli.module(service=service(lease_spec("jobs"))), "--url", url, status=1
    )
    assert result.stderr.startswith("inboxkit: ")


@pytest.mark.parametrize("is_json", [True, False])
def test_watching_in_a_pipe_prints_again_and_again(
    is_json: bool, cli: Cli, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = lease_spec("jobs")
    make(sqlite_url, spec)
    put(sqlite_url, spec, {"group": "mails"})
    looks = []

    def made(url: str) -> Any:
        app = service(spec)(url)
        clock = app.broker.database.clock

        async def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(type(clock), "sleep", lambda self, seconds: sleep(seconds))
        return app

    arguments = [
        "stats",
        cli.module(service=made),
        "--url",
        sqlite_url,
        "--watch",
        "--interval",
        "7",
    ]
    output = cli.run(*arguments, *(["--json"] if is_json else [])).stdout
    assert looks == [7.0] * 3
    if is_json:
        found = [json.loads(line) for line in output.splitlines()]
        assert [one["queues"][0]["due"] for one in found] == [1, 1, 1]
    else:
        assert output.count("mails") == 3


def test_an_interval_has_a_sense(cli: Cli, sqlite_url: str) -> None:
    name = cli.module(service=service(lease_spec("jobs")))
    cli.run("stats", name, "--url", sqlite_url, "--watch", "--interval", "0", status=2)


@pytest.mark.parametrize(
    "command",
    [("check",), ("stats",), ("dead", "list"), ("dead", "purge", "--all"), ("pause", "mails")],
    ids=" ".join,
)
def test_a_file_that_is_not_there_is_not_made(
    command: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    spec = lease_spec("mail")
    made = factory(InboxQueue(spec, "mails", Mail), dead={"mails": "mails.dead"})
    verb = command[:2] if command[0] == "dead" else command[:1]
    arguments = (*verb, cli.module(service=made), *command[len(verb) :])
    url = f"sqlite:///{tmp_path / 'typo.db'}"
    assert "there is no SQLite file" in cli.run(*arguments, "--url", url, status=1).stderr
    assert list(tmp_path.iterdir()) == []
