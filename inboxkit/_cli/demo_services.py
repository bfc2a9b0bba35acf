"""What the demo lets the four services do, in real time and in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import anyio

from inboxkit import Database, Service
from inboxkit_testing import CrashedError, Timeline, VirtualClock, open_test_database
from inboxkit_testing.timeline import Note

from .examples import Examples

__all__ = ["CRASH_AFTER", "MESSAGES", "Story", "real_time", "virtual_time"]

MESSAGES = 20
"""Messages that each service gets in real time."""

CRASH_AFTER = timedelta(minutes=2, seconds=10)
"""How far into the five-minute render its process dies."""

TEN_MINUTES = timedelta(minutes=10)
SEED = 2030


class Story:
    """What the virtual part published, for the checks to compare with."""

    start: datetime
    orders: tuple[int, ...] = (1001, 1002, 1003)
    accounts: tuple[str, ...] = ("alice", "bob")
    postings: int = 12


async def real_time(path: Path, examples: Examples) -> None:
    """Publish to all four services, and serve until nothing is due."""
    async with AsyncExitStack() as running:
        database = await running.enter_async_context(Database(f"sqlite:///{path}"))
        started: list[tuple[Service, Callable[..., Awaitable[None]]]] = []
        for example in examples:
            app: Service = example.service(database)
            await running.enter_async_context(app.running())
            started.append((app, example.publish))
        for number in range(MESSAGES):
            for app, publish in started:
                await publish(app.broker, number)
        while [app for app, _ in started if await examples.main.count_open(app)]:  # noqa: ASYNC110
            await anyio.sleep(0.02)  # as a person who watches would look again


async def virtual_time(
    path: Path, examples: Examples, clock: VirtualClock, timeline: Timeline
) -> Story:
    """Three days of the four services, on one file, each in a database of its own as in a process."""
    story = Story()
    story.start = clock.now()
    url = f"sqlite:///{path}"
    async with AsyncExitStack() as running:

        async def start(example: str, poll_interval: timedelta) -> Service:
            database = open_test_database(url, clock=clock, random=_random())
            await running.enter_async_context(database)
            app: Service = getattr(examples, example).service(database, poll_interval)
            await running.enter_async_context(app.running())
            return app

        mailer = await start("mailer", TEN_MINUTES)
        accounts = await start("accounts", TEN_MINUTES)
        shop = await start("shop", TEN_MINUTES)
        await _publish(examples, story, mailer, accounts, shop)
        await _crash_in_mid_render(url, examples, clock, timeline)
        await clock.sleep_until(story.start + timedelta(days=3, minutes=11))
    return story


async def _publish(
    examples: Examples, story: Story, mailer: Service, accounts: Service, shop: Service
) -> None:
    mail, crm = examples.mailer, examples.accounts
    for to in ("customer@example.com", "rejected@example.com", "unavailable@example.com"):
        await mailer.broker.publish(mail.EMAILS, mail.Mail(to, "hello"))
    await accounts.broker.publish(crm.CRM, crm.Contact(1, "refused for want of an address"))
    await accounts.broker.publish(crm.CRM, crm.Contact(2, "second@example.com"))
    for number in range(story.postings):
        account = story.accounts[number % len(story.accounts)]
        posting = crm.Posting(account, 100 * number)
        await accounts.broker.publish(crm.POSTINGS, posting, account=account)
    for order in story.orders:
        await shop.broker.publish(
            examples.shop.CHECKOUTS, examples.shop.Order(order, f"customer{order}@example.com")
        )


async def _crash_in_mid_render(
    url: str, examples: Examples, clock: VirtualClock, timeline: Timeline
) -> None:
    """One process dies while it renders; a second one finds the row when its lease has ended."""
    reports = examples.reports
    start = clock.now()
    dying = open_test_database(url, clock=clock, random=_random())
    async with anyio.create_task_group() as process:

        async def serve() -> None:
            try:
                async with dying, reports.service(dying).running():
                    is_serving.set()
                    await anyio.sleep_forever()
            except* CrashedError:
                # A killed process says nothing; this is how the kit unwinds its tasks, which send no
                # statement any more.
                pass

        is_serving = anyio.Event()
        process.start_soon(serve)
        await is_serving.wait()
        async with open_test_database(url, clock=clock) as other:
            app = reports.service(other)
            await app.broker.publish(reports.REPORTS, reports.Report(1, pages=30_000))
        await clock.sleep_until(start + CRASH_AFTER)
        await dying.crash()
        timeline.add(
            Note(
                at=clock.now(), instance="reports", queue="reports", text="CRASH: the process dies"
            )
        )
        process.cancel_scope.cancel()
    async with (
        open_test_database(url, clock=clock, random=_random(1)) as database,
        reports.service(database).running(),
    ):
        await clock.sleep_until(start + TEN_MINUTES)


def _random(number: int = 0) -> Random:
    """The demo tells the same story each time."""
    return Random(SEED + number)  # noqa: S311
