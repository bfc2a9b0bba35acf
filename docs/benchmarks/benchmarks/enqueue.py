"""Writing jobs: one by one and a thousand in one statement, by inboxkit and by the driver alone."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from inboxkit import Broker, Database, InboxQueue, insert_rows

from .measuring import Sample, run_in
from .on_sqlite import SqlitePlace
from .ours import url_with
from .places import Place, remake
from .postgres_sessions import connect_postgres
from .raw_mysql import connect_mysql
from .tables import NAME, RAW, Job, LeaseRow, ddl, raw_ddl

__all__ = ["by_driver", "by_inboxkit"]

AT_ONCE: Final = 1000
"""Rows of one bulk call."""

_One = Callable[[Job], Awaitable[object]]
_Many = Callable[[list[Job]], Awaitable[object]]


def by_inboxkit(
    place: Place, backend: str, *, one_by_one: int, bulks: int, driver: str | None = None
) -> Sample:
    """Measure `Broker.publish`, and `insert_rows` of a thousand in a transaction."""
    sample: Sample = {}

    async def main() -> None:
        async with Database(url_with(place.url, driver)) as database:
            broker = Broker(database)
            queue = InboxQueue(LeaseRow, NAME, Job)

            async def many(jobs: list[Job]) -> None:
                async with database.transaction() as tx:
                    await insert_rows(tx, *(LeaseRow.of(job, name=NAME) for job in jobs))

            await _measure(sample, lambda job: broker.publish(queue, job), many, one_by_one, bulks)

    remake(place, LeaseRow.spec.table, ddl(place.dialect, LeaseRow.spec), 0)
    with place.measuring():
        run_in(backend, main)
    assert place.value(f"SELECT count(*) FROM {LeaseRow.spec.table}") == _count(one_by_one, bulks)
    return sample


def by_driver(place: Place, backend: str, *, one_by_one: int, bulks: int) -> Sample:
    """Measure the driver's own cheapest ways to write the same rows."""
    sample: Sample = {}

    async def main() -> None:
        async with AsyncExitStack() as opened:
            one, many = await _WRITERS[place.dialect](place, backend, opened)
            await _measure(sample, one, many, one_by_one, bulks)

    remake(place, RAW, raw_ddl(place.dialect), 0)
    with place.measuring():
        run_in(backend, main)
    assert place.value(f"SELECT count(*) FROM {RAW}") == _count(one_by_one, bulks)
    return sample


def _count(one_by_one: int, bulks: int) -> int:
    return 1 + one_by_one + (1 + bulks) * AT_ONCE


async def _measure(sample: Sample, one: _One, many: _Many, one_by_one: int, bulks: int) -> None:
    jobs = [Job(n) for n in range(max(one_by_one, AT_ONCE))]
    await one(jobs[0])  # connects, and prepares
    start = time.perf_counter()
    for job in jobs[:one_by_one]:
        await one(job)
    sample["one by one/s"] = one_by_one / (time.perf_counter() - start)
    await many(jobs[:AT_ONCE])
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(bulks):
        await many(jobs[:AT_ONCE])
    sample["bulk/s"] = bulks * AT_ONCE / (time.perf_counter() - start)
    sample["bulk cpu µs"] = (time.process_time() - cpu) / bulks / AT_ONCE * 1e6


async def _on_postgres(place: Place, backend: str, opened: AsyncExitStack) -> tuple[_One, _Many]:
    session = await connect_postgres(place.url, backend)
    opened.push_async_callback(session.close)
    single = f"INSERT INTO {RAW} (name, payload) VALUES ($1, $2) RETURNING id"
    bulk = (
        f"INSERT INTO {RAW} (name, payload) "
        "SELECT $1::text, payload FROM unnest($2::bytea[]) AS payload RETURNING id"
    )

    async def one(job: Job) -> None:
        await session.rows(single, NAME, _encode(job))

    async def many(jobs: list[Job]) -> None:
        await session.rows(bulk, NAME, [_encode(job) for job in jobs])

    return one, many


async def _on_sqlite(place: Any, backend: str, opened: AsyncExitStack) -> tuple[_One, _Many]:
    assert isinstance(place, SqlitePlace)
    text = f"INSERT INTO {RAW} (name, payload) VALUES (?, ?)"
    if backend == "trio":
        return _in_trio_threads(place, text, opened)
    import aiosqlite  # noqa: PLC0415 - of one backend alone

    connection = await opened.enter_async_context(
        aiosqlite.connect(place.path, isolation_level=None)
    )

    async def one(job: Job) -> None:
        await connection.execute(text, (NAME, _encode(job)))

    async def many(jobs: list[Job]) -> None:
        await connection.execute("BEGIN IMMEDIATE")
        await connection.executemany(text, [(NAME, _encode(job)) for job in jobs])
        await connection.execute("COMMIT")

    return one, many


def _in_trio_threads(place: SqlitePlace, text: str, opened: AsyncExitStack) -> tuple[_One, _Many]:
    import trio  # noqa: PLC0415 - of one backend alone

    connection = place.connect(place.path, isolation_level=None, check_same_thread=False)
    opened.callback(connection.close)

    async def one(job: Job) -> None:
        await trio.to_thread.run_sync(connection.execute, text, (NAME, _encode(job)))

    def write(rows: list[tuple[str, bytes]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(text, rows)
        connection.execute("COMMIT")

    async def many(jobs: list[Job]) -> None:
        await trio.to_thread.run_sync(write, [(NAME, _encode(job)) for job in jobs])

    return one, many


async def _on_mysql(place: Place, backend: str, opened: AsyncExitStack) -> tuple[_One, _Many]:
    session = await connect_mysql(place.url, backend)
    opened.push_async_callback(session.close)
    text = f"INSERT INTO {RAW} (name, payload) VALUES (%s, %s)"

    async def one(job: Job) -> None:
        await session.query(text, NAME, _encode(job))

    async def many(jobs: list[Job]) -> None:
        await session.many(text, [(NAME, _encode(job)) for job in jobs])

    return one, many


_WRITERS: Final = {"postgres": _on_postgres, "sqlite": _on_sqlite, "mysql": _on_mysql}
_encode: Final = msgspec.json.Encoder().encode
