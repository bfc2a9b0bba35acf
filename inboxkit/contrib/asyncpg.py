"""A `Database` over an asyncpg pool that the service has already."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import asyncpg

from inboxkit._db.asyncpg import AsyncpgConnection, prepared, prepares
from inboxkit.abc import Clock, DialectName
from inboxkit.clock import SystemClock
from inboxkit.database import Database
from inboxkit.errors import ConnectError, DeclarationError, DialectError

__all__ = ["AsyncpgDatabase"]


class AsyncpgDatabase(Database):
    """A database whose sessions are those of a service's own asyncpg pool; on asyncio.

    While it is open it keeps up to `pool_size` sessions of the pool, set up in its own way. One that it
    gives back is closed, and the pool opens a fresh one in its place when it needs it. When their server
    turns out to have become read-only, as after a fail-over, the pool is told to open all of its sessions
    anew. The pool itself is never closed here; close this database, or the service that opened it, before the pool.

    Args:
        pool: Made by `asyncpg.create_pool`, and initialised when this is opened.
        pool_size: Most sessions at once; None: half of the pool's.
        clock: Where all time comes from; None: the host's.
        random: Where all randomness comes from; None: a new `random.Random`.
        statement_timeout: After this a statement is stopped.

    Raises:
        DeclarationError: `pool` is none, or has fewer sessions than `pool_size`.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        pool_size: int | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        statement_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        if not isinstance(pool, asyncpg.Pool):
            raise DeclarationError(
                f"AsyncpgDatabase takes a pool of asyncpg.create_pool(), not {pool!r}"
            )
        most = pool.get_max_size()
        if pool_size is None:
            pool_size = max(most // 2, 1)
        elif pool_size > most:
            raise DeclarationError(
                f"pool_size={pool_size} is more than the pool has: create_pool(max_size={most})"
            )
        clock = clock if clock is not None else SystemClock()
        driver = _PoolDriver(pool, clock=clock, timeout=statement_timeout.total_seconds())
        self._set_up_over(driver, pool_size=pool_size, clock=clock, random=random)


class _Lent(AsyncpgConnection):
    """A session of a pool."""

    @property
    def is_closed(self) -> bool:
        try:
            return super().is_closed
        except asyncpg.InterfaceError:
            return True  # and its place is the pool's again


class _PoolDriver:
    """A `Driver` whose connections come from a pool."""

    name = "asyncpg"
    dialect: DialectName = "postgres"
    max_connections: int | None = None

    def __init__(self, pool: asyncpg.Pool, *, clock: Clock, timeout: float) -> None:
        self._pool = pool
        self._clock = clock
        self._timeout = timeout

    async def connect(self) -> AsyncpgConnection:
        with self._clock.external("connect"):
            try:
                connection = await self._pool.acquire(timeout=self._timeout)
                is_pooled = await prepared(connection, self._timeout)
                if is_pooled and prepares(connection):
                    connection.terminate()
                    raise DialectError(
                        "a pooler stands between this service and PostgreSQL, and may give each transaction "
                        "to another session than the one that a statement was prepared on; make the pool by "
                        "asyncpg.create_pool(…, statement_cache_size=0)"
                    )
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                raise ConnectError(f"the pool gave no session: {error}") from error
        return _Lent(connection, clock=self._clock, timeout=self._timeout, is_pooled=is_pooled)

    async def move(self) -> None:
        """Have the pool open its sessions anew."""
        await self._pool.expire_connections()

    async def aclose(self) -> None:
        """The pool is the service's."""

    def __repr__(self) -> str:
        return f"<pool of {self._pool.get_max_size()} asyncpg sessions>"
