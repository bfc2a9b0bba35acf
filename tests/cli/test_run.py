"""`inboxkit run` in this process: what it prints, and how it fails."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli_kit import Cli, Mail, factory, lease_spec, make, put

from inboxkit import Broker, Database, InboxQueue, Service, events, subscriber
from inboxkit._cli.counting import Counts

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


def test_the_log_has_what_it_had_and_the_counts_have_all() -> None:
    logger = logging.getLogger("inboxkit")
    before = logger.level, list(logger.filters)
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    keep = Keep()
    logger.addHandler(keep)
    logger.setLevel(logging.INFO)
    row = {"at": datetime(2030, 1, 1, tzinfo=UTC), "queue": "mails", "attempt": 1}
    try:
        with Counts("mailer") as counts:

            def send(level: int, kind: Any, id: int, instance: str = "mailer", **more: Any) -> None:
                event = kind(instance=instance, id=id, **row, **more)
                logger.log(level, "%s %s", kind.__name__, id, extra={"event": event})

            send(logging.DEBUG, events.Claimed, 1, locked_until=None)
            send(logging.DEBUG, events.Claimed, 2, locked_until=None)
            send(logging.DEBUG, events.Claimed, 3, locked_until=None)
            send(logging.DEBUG, events.Finished, 1, outcome="ack")
            send(logging.WARNING, events.Finished, 2, outcome="drop")
            send(logging.INFO, events.Claimed, 9, instance="another", locked_until=None)
            logger.info("told")
            logger.debug("not told")
        assert counts.table() == (["queue", "acked", "dropped"], [["'mails'", "1", "1"]])
        assert list(counts.in_work) == [("mails", 3)]
        assert seen == ["Finished 2", "Claimed 9", "told"]
        assert logger.level == logging.INFO
    finally:
        logger.removeHandler(keep)
        logger.setLevel(before[0])
    assert logger.filters == before[1]
