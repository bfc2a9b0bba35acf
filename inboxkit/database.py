"""`Database`: the one place that connects, and the owner of the clock and of randomness."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from inboxkit._core.spec import InboxSpec
from inboxkit._db.blocks import Block
from inboxkit._db.connection import Connection, Transaction, connection_on, transaction_on
from inboxkit._db.drivers import make_driver
from inboxkit._db.pool import Pool
from inboxkit._db.record import Record
from inboxkit._db.scripts import READ_CLOCK
from inboxkit._db.sqlite_errors import check_exists, check_writable
from inboxkit._db.url import DatabaseUrl, parse_url
from inboxkit._runtime.room import Room
from inboxkit._runtime.transaction import HoldBook
from inboxkit._runtime.waking import WakeHub
from inboxkit._sql.check import check
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.statement import Reading, Script
from inboxkit.abc import Clock, DialectName, Driver, DriverConnection, ServerClock
from inboxkit.clock import SystemClock
from inboxkit.errors import ClosedError, ConnectError, DeclarationError

from ._core.async_only import AsyncOnly

__all__ = ["Connection", "Database", "Record", "Transaction"]

T = TypeVar("T")

_STATEMENT_TIMEOUT = timedelta(seconds=30)


class Database(AsyncOnly):
    """A database, on either backend.

    Statements have ``$1`` placeholders on every database. Opened by ``async with``, or by the
    `Service` that it is given to; nothing connects before.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``sqlite:///:memory:`` (one
            connection), ``postgresql://…``. The driver follows from the running backend, or is
            named: ``sqlite+aiosqlite://``, ``sqlite+thread://``, ``postgresql+asyncpg://``,
            ``postgresql+psycopg://``.
        pool_size: Most connections at once; at least 1.
        clock: Where all time comes from: a `DatabaseClock` is the server's; None: the host's.
        random: Where all randomness comes from; None: a new `random.Random`.
        statement_timeout: After this a statement is stopped; SQLite waits as long for a lock.

    Raises:
        DeclarationError: The URL or a setting makes no sense.
        DialectError: The URL names a database that this version does not serve.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        clock: Clock | None = None,
        random: Random | None = None,
        statement_timeout: timedelta = _STATEMENT_TIMEOUT,
    ) -> None:
        if not isinstance(statement_timeout, timedelta) or statement_timeout <= timedelta(0):
            raise DeclarationError(
                f"statement_timeout must be a positive timedelta, not {statement_timeout!r}"
            )
        self._url: DatabaseUrl | None = parse_url(url)
        self._dialect: DialectName = self._url.dialect
        self._timeout = statement_timeout.total_seconds()
        self._driver: Driver | None = None
        self._set_up(pool_size, clock, random)

    @classmethod
    def over(
        cls,
        driver: Driver,
        *,
        pool_size: int = 10,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> Database:
        """A database over any implementation of the driver port.

        Args:
            driver: Opens the connections; closed with the database.
            pool_size: Most connections at once; at least 1.
            clock: Where all time comes from; it should be the driver's own. None: the host's.
            random: Where all randomness comes from; None: a new `random.Random`.
        """
        self = cls.__new__(cls)
        self._set_up_over(driver, pool_size=pool_size, clock=clock, random=random)
        return self

    def _set_up_over(
        self, driver: Driver, *, pool_size: int, clock: Clock | None, random: Random | None
    ) -> None:
        self._url = None
        self._dialect = driver.dialect
        self._driver = driver
        self._set_up(pool_size, clock, random)

    def _set_up(self, pool_size: int, clock: Clock | None, random: Random | None) -> None:
        if type(pool_size) is not int or pool_size < 1:
            raise DeclarationError(f"pool_size must be an int of at least 1, not {pool_size!r}")
        if clock is not None and not isinstance(clock, Clock):
            raise DeclarationError(f"clock must be a Clock, not {clock!r}")
        if random is not None and not isinstance(random, Random):
            raise DeclarationError(f"random must be a random.Random, not {random!r}")
        self._pool_size = pool_size
        self._clock = clock if clock is not None else SystemClock()
        if isinstance(clock, ServerClock):
            if clock.dialect is not None:
                raise DeclarationError(
                    f"{clock!r} belongs to another Database already; give each one of its own"
                )
            clock.dialect = self._dialect
        self._random = random if random is not None else Random()  # noqa: S311
        self._pool: Pool | None = None
        self._described: dict[InboxSpec, TableInfo] = {}
        self.wakes: WakeHub = WakeHub()
        self.room: Room = self._make_room()
        self.holds: HoldBook = HoldBook()
        self.notifies = False
        """Whether inserts on its connections notify other processes (`Broker(listen_notify=True)`)."""

    @property
    def clock(self) -> Clock:
        """Where all time comes from."""
        return self._clock

    @property
    def random(self) -> Random:
        """Where all randomness comes from."""
        return self._random

    @property
    def dialect(self) -> DialectName:
        """Which SQL the database speaks."""
        return self._dialect

    @property
    def driver_name(self) -> str:
        """The driver's name, such as ``"asyncpg"``; known once the database is open."""
        if self._driver is not None:
            return self._driver.name
        if self._url is not None and self._url.driver is not None:
            return self._url.driver
        raise self._not_open()

    @property
    def pool_size(self) -> int:
        """Most connections at once; 1 for SQLite's ``:memory:``, once it is open."""
        return self._pool.size if self._pool is not None else self._pool_size

    def _make_room(self) -> Room:
        """One connection is always left to handlers and their statements."""
        return Room(max(self.pool_size - 1, 1))

    @property
    def is_open(self) -> bool:
        """True between `open` and `aclose`."""
        return self._pool is not None

    async def open(self) -> None:
        """Connect; nothing to do where it is open.

        Raises:
            ConnectError: The server or file cannot be reached.
            MissingExtraError: The driver is not installed; the message names the command.
            ServerTooOldError: PostgreSQL before 12, SQLite before 3.35.
            StartupError: The URL names a driver that does not run on this backend.
        """
        if self._pool is not None:
            return
        if self._url is not None:
            self._driver = make_driver(self._url, clock=self._clock, timeout=self._timeout)
        assert self._driver is not None
        pool = Pool(self._driver, size=self._pool_size)
        try:
            await pool.open()
        except ConnectError as error:
            if self._url is not None and self._dialect != "sqlite":
                error.args = (f"{error}; the URL is {self._url.shown}", *error.args[1:])
            raise
        if self._pool is not None:  # opened by another task meanwhile
            await pool.aclose()
            return
        self._pool = pool
        self.room = self._make_room()
        if isinstance(self._clock, ServerClock):
            try:
                await self.read_clock()
            except BaseException:
                await self.aclose()
                raise

    def check_writable(self) -> None:
        """Look whether a SQLite file can be written, which a service needs; nothing is sent.

        Raises:
            ConnectError: The file, or its folder, cannot.
        """
        if self._url is not None and self._url.dialect == "sqlite":
            check_writable(self._url.location)

    def check_exists(self) -> None:
        """Look whether a SQLite file is there, which opening it would make; nothing is sent.

        Raises:
            ConnectError: It is not.
        """
        if self._url is not None and self._url.dialect == "sqlite":
            check_exists(self._url.location)

    async def aclose(self) -> None:
        """Close all connections, within a bound; those in use are waited for 5 seconds."""
        pool, self._pool = self._pool, None
        if pool is not None:
            assert self._driver is not None
            await pool.aclose()
            await self._driver.aclose()

    async def __aenter__(self) -> Database:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection for a block; outside a transaction each statement commits by itself.

        On MariaDB and MySQL one whose settings were changed (``SET time_zone = …``, ``USE …``) is closed
        behind the block, and lent to nobody else.

        Raises:
            PoolTimeoutError: None became free within 30 seconds.
            DatabaseError: This same task holds all connections of the pool already.
            ClosedError: The database is not open.
        """
        return Block(connection_on(self, self._lent()), "connection")

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Run a block in a transaction: committed at its end, rolled back when it raises.

        SQLite takes its write lock at the beginning; such transactions of one `Database` queue. On
        MariaDB and MySQL it is READ COMMITTED, unless the connection was told otherwise: under
        REPEATABLE READ, their default, what a locking read meets keeps out inserts. On PostgreSQL it is
        as the server has it.

        Raises:
            DatabaseBusyError: Another connection kept the lock; nothing happened.
            OutcomeUnknownError: The connection broke at the COMMIT.
            DatabaseError: An error of a statement had aborted it and was not passed on; nothing was
                committed.

        Cancellation:
            Rolls back. A COMMIT or ROLLBACK that has begun is finished first, within a bound.
        """
        lending = connection_on(self, self._open_pool().transaction())
        return Block(transaction_on(lending, is_begun=True), "transaction")

    async def execute(self, sql: str, /, *parameters: Any) -> int:
        """Run one statement on a connection of its own, and commit it.

        Returns:
            How many rows it wrote, or -1 where the database does not say.
        """
        async with self.connection() as connection:
            return await connection.execute(sql, *parameters)

    async def fetch(self, sql: str, /, *parameters: Any) -> list[Record]:
        """Run one statement on a connection of its own, and return its rows."""
        async with self.connection() as connection:
            return await connection.fetch(sql, *parameters)

    async def fetch_one(self, sql: str, /, *parameters: Any) -> Record | None:
        """The first row of a statement, or None where it has none."""
        async with self.connection() as connection:
            return await connection.fetch_one(sql, *parameters)

    async def fetch_value(self, sql: str, /, *parameters: Any) -> Any:
        """The first value of a statement's first row, or None where it has none."""
        async with self.connection() as connection:
            return await connection.fetch_value(sql, *parameters)

    async def run(self, script: Script[T]) -> T:
        """Run a script of statements on a connection of its own.

        On SQLite a script that is not a ``"read"`` takes its turn among this database's writers.
        """
        pool = self._pool or self._open_pool()
        connection = await pool.acquire(is_urgent=script.is_urgent)
        try:
            return await connection.run(script)
        finally:
            await pool.release(connection)

    async def read_clock(self) -> Reading:
        """Read the clock as a script does: where it is the server's, by asking it."""
        return await self.run(READ_CLOCK)

    async def acquire(self, *, wait: bool = True) -> DriverConnection:
        """Take a session of the pool for the runtime, which gives it to `release` again.

        Services use `connection` and `transaction`.

        Args:
            wait: Whether to wait until one is free.

        Raises:
            PoolTimeoutError: None became free within 30 seconds, or was free.
            DatabaseBusyError: A new one was needed, and the database could not be reached.
            ClosedError: The database is not open.
        """
        return await self._open_pool().acquire(wait=wait)

    async def begin(self) -> DriverConnection:
        """Take a session for the runtime, inside a transaction that lasts as long as a row is in work.

        An idle session that turns out to have ended is replaced.

        Raises:
            PoolTimeoutError: None became free within 30 seconds.
            DatabaseBusyError: The database could not be reached, or the lock not be had.
            ClosedError: The database is not open.
        """
        return await self._open_pool().begin(hold=True)

    async def release(self, connection: DriverConnection, /) -> None:
        """Take back what `acquire` lent; one inside a transaction is rolled back first.

        Cancellation:
            The session is back in any case, or closed.
        """
        if self._pool is not None:
            await self._pool.release(connection)
        else:
            connection.terminate()

    async def connect_apart(self) -> DriverConnection:
        """Open a session beside the pool; it is the caller's to close.

        Raises:
            ConnectError: The database cannot be reached.
            ClosedError: The database is not open.
        """
        if self._pool is None or self._driver is None:
            raise self._not_open()
        return await self._driver.connect()

    async def describe(
        self, spec: InboxSpec, *, connection: Connection | None = None, fresh: bool = False
    ) -> TableInfo:
        """What the database says of a table, checked against its description.

        Asked once, and remembered: inserts need it each time.

        Args:
            spec: The description.
            connection: Asks on this one; None: on one of the pool.
            fresh: Ask although it is remembered.

        Raises:
            SchemaError: The table, or a column, is missing or cannot hold its role.
        """
        if not fresh and (known := self._described.get(spec)) is not None:
            return known
        dialect = get_dialect(self._dialect)
        info = await (connection or self).run(dialect.describe(spec))
        check(dialect, spec, info)
        self._described[spec] = info
        return info

    def _lent(self) -> AbstractAsyncContextManager[DriverConnection]:
        return self._open_pool().connection()

    def _open_pool(self) -> Pool:
        if self._pool is None:
            raise self._not_open()
        return self._pool

    def _not_open(self) -> ClosedError:
        return ClosedError(
            f"{self!r} is not open: use it inside `async with database:`, or give it to a Service, "
            "which opens it"
        )

    def __repr__(self) -> str:
        shown = self._url.shown if self._url is not None else f"over {self._driver!r}"
        return f"<Database {shown}>"
