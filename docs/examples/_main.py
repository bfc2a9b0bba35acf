"""Runs an example from the command line; not part of what it shows."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from inboxkit import Broker, Database, InboxkitError, Service

IDLE_LOOKS = 2
SECONDS_BETWEEN_LOOKS = 0.1


def main(
    service: Callable[[str], Service],
    url: str,
    publish: Callable[[Broker, int], Awaitable[None]],
) -> None:
    """Parse the command line and run.

    Args:
        service: Builds the service over a database's URL.
        url: The database where the command line names none.
        publish: Publishes message number n.
    """
    parser = argparse.ArgumentParser(description=sys.modules[service.__module__].__doc__)
    parser.add_argument("--url", default=url, help=f"the database; default {url}")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument(
        "--publish", type=count, default=0, metavar="N", help="publish N messages first"
    )
    parser.add_argument(
        "--until-empty", action="store_true", help="end once nothing is due and nothing in work"
    )
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO)
    try:
        anyio.run(
            run,
            service(options.url),
            publish,
            options.publish,
            options.until_empty,
            backend=options.backend,
        )
    except InboxkitError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def count(text: str) -> int:
    """A whole number, zero or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, not {text!r}")
    return int(text)


async def run(
    app: Service, publish: Callable[[Broker, int], Awaitable[None]], count: int, until_empty: bool
) -> None:
    """Publish, then serve: until nothing is due, or until a signal."""
    if not count and not until_empty:
        await app.run()
        return
    # `app.run()` sees to signals by itself; `app.running()` leaves them to its caller.
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with app.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_at_a_signal, signals, tasks.cancel_scope)
            for number in range(count):
                await publish(app.broker, number)
            if until_empty:
                await wait_until_idle(app)
            else:
                await anyio.sleep_forever()
            tasks.cancel_scope.cancel()


async def cancel_at_a_signal(
    signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope
) -> None:
    """End the block, so that the service drains and stops."""
    async for _ in signals:
        scope.cancel()


async def wait_until_idle(app: Service) -> None:
    """Look until no table has a row that is due or in work, twice in a row."""
    idle = 0
    while idle < IDLE_LOOKS:
        idle = idle + 1 if await count_open(app) == 0 else 0
        await anyio.sleep(SECONDS_BETWEEN_LOOKS)


async def count_open(app: Service) -> int:
    """Rows of the service's queues that are neither finished nor for later."""
    db: Database = app.broker.database
    total = 0
    for subscriber in app.subscribers:
        spec = subscriber.queue.spec
        conditions = ["1 = 1"]
        values: list[object] = []
        if spec.group is not None:
            values.append(subscriber.queue.name)
            conditions.append(f"{spec.group.name} = ${len(values)}")
        if spec.processed_at is not None:
            conditions.append(f"{spec.processed_at.name} IS NULL")
        if spec.retry_after is not None:
            values.append(db.clock.now())
            due = spec.retry_after.name
            # A row that waits for its retry is open too; one that was published for days ahead is not.
            began = f"{spec.attempt.name} > 1" if spec.attempt is not None else "1 = 0"
            conditions.append(f"({due} IS NULL OR {due} <= ${len(values)} OR {began})")
        query = f"SELECT count(*) FROM {spec.name} WHERE {' AND '.join(conditions)}"
        total += await db.fetch_value(query, *values)
    return total
