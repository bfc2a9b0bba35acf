"""A `Database` over a SQLAlchemy engine that the service has already."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from inboxkit.abc import Clock, DialectName
from inboxkit.clock import SystemClock
from inboxkit.database import Database
from inboxkit.errors import ConnectError, DeclarationError, DialectError

if TYPE_CHECKING:
    from inboxkit._db.asyncpg import AsyncpgConnection

__all__ = ["SQLAlchemyDatabase"]

_SCHEMES: Final = {
    "postgresql": "postgresql",
    "sqlite": "sqlite",
    "mysql": "mysql",
    "mariadb": "mysql",
}


class SQLAlchemyDatabase(Database):
    """A database that an `AsyncEngine` connects to; on asyncio. The engine is never closed here.

    With asyncpg each session is made by the engine, with all that its URL, arguments and events say, and
    is then this database's own: it takes no place in the engine's pool. When their server turns out to
    have become read-only, as after a fail-over, the engine's idle sessions are disposed of, so that they
    lead nobody there. With another driver the engine's
    URL alone is used, and inboxkit's own driver connects.

    Args:
        engine: Made by `create_async_engine`; for PostgreSQL, SQLite files, or MariaDB and MySQL.
        pool_size: Most sessions at once; at least 1.
        clock: Where all time comes from; None: the host's.
        random: Where all randomness comes from; None: a new `random.Random`.
        statement_timeout: After this a statement is stopped.

    Raises:
        DeclarationError: `engine` is none, or its database cannot be reached by another connection
            (SQLite in memory).
        DialectError: inboxkit does not serve this database.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        pool_size: int = 10,
        clock: Clock | None = None,
        random: Random | None = None,
        statement_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        if not isinstance(engine, AsyncEngine):
            raise DeclarationError(
                f"SQLAlchemyDatabase takes an engine of create_async_engine(), not {engine!r}"
            )
        if engine.dialect.driver == "asyncpg":
            clock = clock if clock is not None else SystemClock()
            driver = _EngineDriver(engine, clock=clock, timeout=statement_timeout.total_seconds())
            self._set_up_over(driver, pool_size=pool_size, clock=clock, random=random)
            return
        super().__init__(
            _url_of(engine),
            pool_size=pool_size,
            clock=clock,
            random=random,
            statement_timeout=statement_timeout,
        )


def _url_of(engine: AsyncEngine) -> str:
    url, name = engine.url, engine.dialect.name
    if name != "sqlite":
        scheme = _SCHEMES.get(name, name)
        return url.set(drivername=scheme).render_as_string(hide_password=False)
    path = url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise DeclarationError(
            f"SQLAlchemyDatabase: {path or ':memory:'!r} is open in the engine's own connection only; give the "
            "engine a file, as in sqlite+aiosqlite:///service.db"
        )
    return f"sqlite:///{path}"


class _EngineDriver:
    """A `Driver` whose connections an engine makes, by asyncpg."""

    name = "asyncpg"
    dialect: DialectName = "postgres"
    max_connections: int | None = None

    def __init__(self, engine: AsyncEngine, *, clock: Clock, timeout: float) -> None:
        self._engine = engine
        self._clock = clock
        self._timeout = timeout

    async def connect(self) -> AsyncpgConnection:
        from inboxkit._db.asyncpg import AsyncpgConnection, prepared, prepares  # noqa: PLC0415 - as the engine has

        with self._clock.external("connect"):
            try:
                pooled = await self._engine.raw_connection()
            except (SQLAlchemyError, OSError) as error:
                raise ConnectError(f"the engine gave no session: {error}") from error
            connection: Any = pooled.driver_connection
            pooled.detach()
            is_pooled = await prepared(connection, self._timeout)
            if is_pooled and prepares(connection):
                connection.terminate()
                raise DialectError(
                    "a pooler stands between this service and PostgreSQL, and may give each transaction to "
                    "another session than the one that a statement was prepared on; make the engine by "
                    "create_async_engine(…, connect_args={'statement_cache_size': 0})"
                )
        return AsyncpgConnection(
            connection, clock=self._clock, timeout=self._timeout, is_pooled=is_pooled
        )

    async def move(self) -> None:
        """Have the engine forget the sessions that nobody uses."""
        await self._engine.dispose()

    async def aclose(self) -> None:
        """The engine is the service's."""

    def __repr__(self) -> str:
        return repr(self._engine)
