"""A Postgres primary that becomes read-only, and a replica that takes its place."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from chaos_counting import wait_until
from chaos_run import Size, running
from chaos_servers import own_pair
from chaos_sql import Outside

from inboxkit import Broker, Database, Inbox, InboxQueue, Service, role, subscriber
from inboxkit._runtime import listening
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect


class Heard(Inbox, table="heard_jobs"):
    """Of another process."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    "AND (query LIKE 'LISTEN%' OR query LIKE '%transaction_read_only%')"
)

CELLS = [
    pytest.param(form, how, id=f"{form}-{how}", marks=() if small else pytest.mark.whole_chaos)
    for form, how, small in (
        ("lease", "the old primary dies", False),
        ("row lock", "the old primary dies", False),
        ("advisory lock", "the old primary dies", False),
        ("lease", "the old primary stays read-only", True),
        ("row lock", "the old primary stays read-only", False),
        ("advisory lock", "the old primary stays read-only", False),
    )
]


@pytest.mark.parametrize(("form", "how"), CELLS)
def test_a_service_follows_a_fail_over(
    form: str, how: str, size: Size, seed: int, report: Path | None, tmp_path: Path
) -> None:
    size = replace(size, jobs=min(size.jobs, 2_000))
    about = {"kind": f"fail-over: {how}", "database": "postgres"}
    with (
        own_pair() as pair,
        running(
            lambda: pair.primary.url,
            form,
            size,
            tmp_path,
            seed=seed,
            report=report,
            workers_url=pair.both,
            about=about,
        ) as run,
    ):
        run.wait_for_work()
        run.publish_part(1, 2)
        run.pause(0.1, 0.4)
        if how == "the old primary dies":
            pair.old.stop("crash")
        else:
            pair.make_read_only()
            run.pause(0.1, 0.4)
        run.outages.append(pair.promote())
        run.wait_for_more()


def test_the_session_that_listens_follows_a_fail_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former primary that stays as a read-only server ends no session, and nobody notifies there."""
    monkeypatch.setattr(listening, "_LOOK", 0.2)

    async def main() -> None:
        done = anyio.Event()

        @subscriber(InboxQueue(Heard, "heard", str))
        async def handle(text: str) -> None:
            done.set()

        hour = timedelta(hours=1)
        app = Service("hears", Broker(pair.both, poll_interval=hour, listen_notify=True))
        app.include(handle)
        async with app.running():
            await anyio.to_thread.run_sync(move)
            async with Database(pair.primary.url) as primary:
                broker = Broker(primary, listen_notify=True)
                await broker.publish(InboxQueue(Heard, "heard", str), "a")
                with anyio.fail_after(30):
                    await done.wait()

    def move() -> None:
        pair.make_read_only()
        pair.promote()
        with Outside(pair.primary.url) as outside:
            wait_until(lambda: bool(outside.value(LISTENING)), 30, "it listens there")

    with own_pair() as pair:
        with Outside(pair.primary.url) as outside:
            for statement in create_table(get_dialect("postgres"), Heard.spec):
                outside.run(statement)
        anyio.run(main, backend="trio")
