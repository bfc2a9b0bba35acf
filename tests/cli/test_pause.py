"""`inboxkit pause` and `resume`."""

from __future__ import annotations

from typing import Any

import pytest
from cli_kit import CONTROL, Cli, Mail, factory, lease_spec, make, on

from inboxkit import InboxQueue

SPEC = lease_spec("jobs")
QUEUES = [InboxQueue(SPEC, name, Mail) for name in ("mails", "Mails", "möre 'x'\N{SNOWMAN}")]


def test_a_queue_is_paused_once_and_resumed_once(cli: Cli, db_url: str) -> None:
    make(db_url, control=True)
    name = cli.module(service=factory(*QUEUES))
    odd = QUEUES[2].name
    for command, paused, said in (("pause", True, "is paused"), ("resume", False, "is resumed")):
        answer = cli.json(command, name, "mails", odd, "--url", db_url)
        assert answer == {
            "queues": [
                {"queue": "mails", "paused": paused, "changed": True},
                {"queue": odd, "paused": paused, "changed": True},
            ]
        }
        result = cli.run(command, name, "mails", "Mails", "--url", db_url)
        first, second = result.stdout.splitlines()
        assert first == f"queue 'mails' was {'paused' if paused else 'not paused'} already"
        if paused:
            assert second == f"queue 'Mails' {said}; running services see it within 1 s"


def test_without_a_control_table_it_says_so(cli: Cli, sqlite_url: str) -> None:
    name = cli.module(service=factory(*QUEUES, control=False))
    for command in ("pause", "resume"):
        text = cli.run(command, name, "mails", "--url", sqlite_url, status=2).stderr
        assert "service 'mailer' has no control table" in text
        assert "inboxkit ddl" in text


def test_a_control_table_that_is_not_there_is_told_with_its_statement(
    cli: Cli, sqlite_url: str
) -> None:
    make(sqlite_url, lease_spec("jobs"))
    name = cli.module(service=factory(*QUEUES))
    text = cli.run("pause", name, "mails", "--url", sqlite_url, status=1).stderr
    assert f"control table: table '{CONTROL}' does not exist" in text
    assert text.count("CREATE TABLE") == 1
    assert "CREATE INDEX" not in text


def test_an_unknown_queue_is_a_mistake(cli: Cli, sqlite_url: str) -> None:
    make(sqlite_url, control=True)
    name = cli.module(service=factory(*QUEUES))
    text = cli.run("pause", name, "mails", "other", "--url", sqlite_url, status=2).stderr
    assert "serves no queue 'other'; it has 'mails', 'Mails'" in text
    cli.run("pause", name, "--url", sqlite_url, status=2)


def test_a_control_table_that_folds_case_is_found_out(cli: Cli, shared_mariadb_url: str) -> None:
    make(shared_mariadb_url, control=True)

    async def fold(database: Any) -> None:
        await database.execute(
            f"ALTER TABLE `{CONTROL}` MODIFY queue varchar(255) CHARACTER SET utf8mb4 "
            "COLLATE utf8mb4_general_ci NOT NULL"
        )

    on(shared_mariadb_url, fold)
    name = cli.module(service=factory(*QUEUES))
    cli.run("pause", name, "mails", "--url", shared_mariadb_url)
    text = cli.run("pause", name, "Mails", "--url", shared_mariadb_url, status=1).stderr
    assert "does not tell 'Mails' from other names" in text


def test_a_name_that_the_control_table_cannot_hold(cli: Cli, shared_mariadb_url: str) -> None:
    make(shared_mariadb_url, control=True)
    long = InboxQueue(SPEC, "x" * 300, Mail)
    name = cli.module(service=factory(long))
    result = cli.run("pause", name, long.name, "--url", shared_mariadb_url, status=1)
    assert "column 'queue'" in result.stderr


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_closed_database_is_told(command: str, cli: Cli) -> None:
    name = cli.module(service=factory(*QUEUES))
    url = "postgresql://127.0.0.1:1/x"
    assert "127.0.0.1" in cli.run(command, name, "mails", "--url", url, status=1).stderr
