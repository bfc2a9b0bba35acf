"""`inboxkit run` in this process: what it prints, and how it fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli_kit import Cli, Mail, factory, lease_spec, make, put

from inboxkit import Broker, Database, Inbox, InboxQueue, Service, events, role, subscriber
from inboxkit._cli.counting import Counts
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import VirtualClock

SPEC = lease_spec("jobs")


def settings(cli: Cli, service: Any, *arguments: str) -> list[str]:
    """What a run prints before it fails for want of its table."""
    result = cli.run("run", cli.module(service=service), *arguments, status=1)
    assert "table 'jobs' does not exist" in result.stderr
    return result.stdout.splitlines()


def test_settings_of_the_code_stay_where_the_command_line_says_nothing(
    cli: Cli, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INBOXKIT_URL", "sqlite:///environment.db")

    def service(url: str) -> Service:
        broker = Broker(
            Database(url, pool_size=8),
            lease=timedelta(minutes=2),
            poll_interval=timedelta(seconds=0.25),
        )
        app = Service("mailer", broker, drain_timeout=timedelta(seconds=60))

        @subscriber(InboxQueue(SPEC, "mails", Mail))
        async def handle(mail: Mail) -> None: ...

        app.include(handle, workers=4, max_attempts=3, dead_letter="dead")
        return app

    assert settings(cli, service, "--url", sqlite_url, "--backend", "trio")[:2] == [
        f"service mailer: <Database {sqlite_url}>, backend trio, pool of 8, drain 60 s",
        "  queue mails: lease of 120 s, 4 workers, 3 attempts, then 'dead', poll 0.25 s",
    ]
    first = settings(cli, service)[0]
    assert first == (
        "service mailer: <Database sqlite:///environment.db>, backend asyncio, pool of 8, drain 60 s"
    )


def test_nothing_handled_is_said_so(cli: Cli, sqlite_url: str) -> None:
    made = factory(InboxQueue(SPEC, "mails", Mail), control=False)
    assert settings(cli, made, "--url", sqlite_url)[-1] == "no row was handled"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_error_that_stops_the_service_is_told_in_a_line(
    backend: str, cli: Cli, sqlite_url: str
) -> None:
    make(sqlite_url, SPEC)
    put(sqlite_url, SPEC, {"group": "mails"})

    def service(url: str) -> Service:
        app = Service("mailer", Broker(url))

        @subscriber(InboxQueue(SPEC, "mails", Mail))
        async def handle(mail: Mail) -> None:
            raise ValueError("boom")

        app.include(handle, on_error="stop")
        return app

    arguments = ("run", cli.module(service=service), "--url", sqlite_url, "--backend", backend)
    result = cli.run(*arguments, status=1)
    assert f"service 'mailer' stopped: ValueError: boom ({__file__}, line " in result.stderr
    head, line = result.stdout.splitlines()[-2:]
    assert head.split() == ["queue", "acked", "failed", "released"]
    assert line.split() == ["'mails'", "0", "1", "1"]


def counted(counts: Counts, kind: Any, id: int, instance: str = "mailer", **more: Any) -> None:
    row = {"at": datetime(2030, 1, 1, tzinfo=UTC), "queue": "mails", "attempt": 1}
    counts.tell(kind(instance=instance, id=id, **{**row, **more}))


def test_events_of_the_service_are_counted() -> None:
    counts = Counts("mailer")
    for id in (1, 2, 3):
        counted(counts, events.Claimed, id, locked_until=None)
    counted(counts, events.Finished, 1, outcome="ack")
    counted(counts, events.Finished, 2, outcome="drop")
    counted(counts, events.Claimed, 9, instance="another", locked_until=None)
    assert counts.table() == (["queue", "acked", "dropped"], [["'mails'", "1", "1"]])
    assert counts.in_work == counts.left == [("mails", 3)]


@pytest.mark.parametrize("form", ["lease", "session"])
def test_what_was_not_settled_is_forgotten_once_others_may_have_it(form: str) -> None:
    """Or a service that runs for months would keep each such row."""
    counts = Counts("mailer")
    for number in range(10_000):
        at = datetime(2030, 1, 1, tzinfo=UTC) + number * timedelta(seconds=1)
        until = at + timedelta(seconds=30) if form == "lease" else None
        counted(counts, events.Claimed, number, at=at, locked_until=until)
        if until is not None:
            until += timedelta(seconds=5)
            counted(counts, events.Renewed, number, at=at, locked_until=until)
        counted(counts, events.Unsettled, number, at=at, error="no")
        if until is not None:  # its answer came late
            counted(counts, events.Renewed, number, at=at, locked_until=until)
        assert counts.in_work == []
        assert len(counts._unsettled) <= 140
    assert counts.left == [("mails", n) for n in range(9_965 if form == "lease" else 9_999, 10_000)]
    assert counts.table() == (["queue", "acked", "unsettled"], [["'mails'", "0", "10000"]])


REFUSING = {
    "sqlite": [
        "CREATE TRIGGER kept BEFORE DELETE ON counted_mails BEGIN SELECT RAISE(ABORT, 'no'); END"
    ],
    "postgres": [
        (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END $$"
        ),
        (
            "CREATE TRIGGER kept BEFORE DELETE ON counted_mails "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
    ],
}
"""What keeps each row from being deleted."""


class Mailed(Inbox, table="counted_mails"):
    """Under leases."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


async def test_a_service_that_cannot_settle_keeps_nothing_in_mind(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    dialect = get_dialect(inbox_database.dialect)
    for statement in create_table(dialect, Mailed.spec):
        await inbox_database.execute(statement)
    for statement in REFUSING[inbox_database.dialect]:
        await inbox_database.execute(statement)
    queue = InboxQueue(Mailed, "mails", Mail)
    app = Service("mailer", Broker(inbox_database, lease=timedelta(seconds=3)))

    @subscriber(queue)
    async def handle(mail: Mail) -> None: ...

    app.include(handle, workers=5)
    counts = Counts("mailer")
    app.on_event(counts.tell)
    async with app.running():
        for number in range(30):
            for _ in range(3):
                await app.broker.publish(queue, Mail("x"))
            await virtual_clock.advance(timedelta(seconds=1))
            assert len(counts.in_work) <= 5
            # Others have what this one could not settle.
            await inbox_database.execute(
                "UPDATE counted_mails SET locked_until = $1 WHERE id <= $2",
                inbox_database.clock.now() + timedelta(days=1)
                if inbox_database.dialect != "sqlite"
                else "2040-01-01T00:00:00.000000+00:00",
                3 * number,
            )
        await virtual_clock.advance(timedelta(seconds=10))
        assert counts.queues["mails"]["unsettled"] >= 90
        assert len(counts.left) <= 3
