"""One SQLite connection, used from one thread: statements, scripts and transactions without waiting
for an event loop.

Everything here but `interrupt` runs in the connection's own thread.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from inboxkit._db.placeholders import Parsed, check_arguments, parse
from inboxkit._db.scripts import question_of
from inboxkit._db.sqlite_errors import SQLITE_ERRORS, cure_of, is_locked, translate
from inboxkit._sql import server_time
from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.abc import ServerClock
from inboxkit.errors import ConnectError, DatabaseBusyError, DatabaseError

__all__ = ["MEMORY", "SqliteSession"]

T = TypeVar("T")

MEMORY: Final = ":memory:"

_PAUSES: Final = (0.001, 0.002, 0.005)
"""Seconds between two tries for a locked database, then 5 ms for ever.

SQLite itself waits longer and longer, up to 0.1 s, so that among several processes whoever has waited
longest is the one who asks least often, and newcomers go before it.
"""


class SqliteSession:
    """A connection of the module `sqlite3`.

    Args:
        path: The file, or ``:memory:``.
        timeout: Seconds to wait for a lock that another connection holds.
        read_clock: Reads the clock; called in this thread.
        server_clock: In its place, a clock that asks SQLite.
    """

    def __init__(
        self,
        path: str,
        *,
        timeout: float,
        read_clock: Callable[[], Reading],
        server_clock: ServerClock | None = None,
    ) -> None:
        self._path = path
        self._timeout = timeout
        self._read_clock = self._ask_for_time if server_clock is not None else read_clock
        self._host_clock = read_clock
        self._server_clock = server_clock
        self._begun = False
        self._has_busy_handler = timeout > 0  # as sqlite3.connect sets it
        self._stopping = threading.Event()
        self._closing = threading.Lock()  # interrupt() must not meet a close()
        self._is_closed = False
        self._connection: sqlite3.Connection | None = None

    @property
    def in_transaction(self) -> bool:
        """True between BEGIN and its end."""
        return self._connection is not None and (self._begun or self._connection.in_transaction)

    def open(self) -> sqlite3.Connection:
        """Open the file; one that did not exist gets the write-ahead log.

        Raises:
            ConnectError: It cannot be opened, or is no database.
        """
        created = self._path != MEMORY and not Path(self._path).exists()
        try:
            # check_same_thread: interrupt() comes from the event loop's thread.
            connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False, timeout=self._timeout
            )
            try:
                if created:
                    connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            except sqlite3.Error:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise ConnectError(
                f"cannot open the SQLite file {self._path!r}: {error}{cure_of(error, self._path)}"
            ) from error
        with self._closing:
            if self._is_closed:  # the task that asked for it was cancelled meanwhile
                connection.close()
            else:
                self._connection = connection
        return connection

    def execute(self, statement: Statement) -> Answer:
        """Run one statement: in the open transaction, or by itself."""
        parsed = parse(statement.text, "sqlite")
        if len(statement.parameters) != parsed.count:
            check_arguments(parsed, statement.parameters, statement=statement.name)
        connection = self._connection or self._open
        if self._begun and not connection.in_transaction:
            raise DatabaseError(
                f"{statement.name}: the transaction was already rolled back by an earlier error; "
                "nothing was executed",
                statement=statement.name,
            )
        is_pragma = parsed.keyword == "PRAGMA"
        if is_pragma:  # of a checkpoint that waits, for one, which reports no lock as an error
            self._set_busy_handler(on=True)
        try:
            if is_pragma or (parsed.writes and self._begun):
                return _answer(connection, parsed, statement.parameters)
            return self._patiently(
                lambda: _answer(connection, parsed, statement.parameters), statement.name
            )
        except SQLITE_ERRORS as error:
            translate(error, statement.name, self._limit, self._path)

    def run(self, script: Script[T]) -> T:
        """Run a script from BEGIN to COMMIT, in one go."""
        if script.transaction != "none":
            self.begin(script.name, write=script.transaction == "write")
        try:
            result = self._step_through(script)
            if script.transaction != "none":
                self._check_stop(script.name)
                self.commit(script.name)
        except BaseException:
            if script.transaction != "none":
                self.rollback()
            raise
        return result

    def begin(self, name: str, *, write: bool) -> None:
        """Begin a transaction, with the write lock if it is to write."""
        connection = self._connection or self._open
        try:
            if write:
                self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"), name)
            else:
                connection.execute("BEGIN")
        except SQLITE_ERRORS as error:
            translate(error, name, self._limit, self._path)
        self._begun = True

    def commit(self, name: str) -> None:
        """Commit; after an error nothing was committed, and the transaction is over."""
        connection = self._connection or self._open
        begun, self._begun = self._begun, False
        if not connection.in_transaction:
            raise DatabaseError(
                f"{name}: the transaction was already aborted by an earlier error; nothing was "
                "committed"
                if begun
                else f"{name}: no transaction is open",
                statement=name,
            )
        try:
            self._patiently(lambda: connection.execute("COMMIT"), name)
        except BaseException as error:
            self.rollback()
            if isinstance(error, SQLITE_ERRORS):
                translate(error, name, self._limit, self._path)
            raise

    def rollback(self) -> None:
        """Undo what was begun; nothing to do where SQLite already has."""
        connection = self._open
        self._begun = False
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except SQLITE_ERRORS as error:
                translate(error, "rollback", self._limit, self._path)

    def close(self) -> None:
        """Close the connection; what was not committed is undone.

        From another thread only while nothing but `open` runs in this one.
        """
        with self._closing:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """Stop what runs now; from any thread. Only a COMMIT that has begun goes on."""
        self._stopping.set()
        with self._closing:
            if self._connection is not None:
                self._connection.interrupt()

    def go_on(self) -> None:
        """Take a stop back, before the next piece of work."""
        self._stopping.clear()

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise DatabaseError("the connection is closed; nothing was executed")
        return self._connection

    @property
    def _limit(self) -> str:
        return f"{self._timeout:g} s"

    def _step_through(self, script: Script[T]) -> T:
        steps = script.steps(self._read_clock())
        try:
            statement = next(steps)
            while True:
                if self._stopping.is_set():
                    self._check_stop(statement.name)
                try:
                    answer = self.execute(statement)
                except DatabaseError as error:
                    statement = steps.throw(error)
                else:
                    statement = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    def _ask_for_time(self) -> Reading:
        clock = self._server_clock
        assert clock is not None
        before = self._host_clock()
        return clock.told(server_time.read(self.execute(question_of(clock))), before.monotonic)

    def _check_stop(self, name: str) -> None:
        if self._stopping.is_set():
            raise DatabaseError(
                f"{name}: stopped after {self._limit} or by a cancellation; nothing was committed",
                statement=name,
            )

    def _patiently(self, attempt: Callable[[], T], name: str) -> T:
        """Try again while another connection holds the lock.

        SQLite's own busy handler cannot be interrupted (3.40), so a cancelled wait would go on to
        its end: it stays off, and the waiting is done here.
        """
        if self._has_busy_handler:
            self._set_busy_handler(on=False)
        waited = 0.0
        for pause in itertools.chain(_PAUSES, itertools.repeat(0.005)):
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
                if waited >= self._timeout or self._stopping.wait(pause):
                    raise _kept_locked(name, waited) from error
            waited += pause
        raise AssertionError("unreachable")

    def _set_busy_handler(self, *, on: bool) -> None:
        """Have SQLite wait for locks itself, or not; without a timeout nobody is ever waited for."""
        if on == self._has_busy_handler or not self._timeout:
            return
        milliseconds = round(self._timeout * 1000) if on else 0
        self._open.execute(f"PRAGMA busy_timeout = {milliseconds}")
        self._has_busy_handler = on


def _answer(connection: sqlite3.Connection, parsed: Parsed, parameters: tuple[Any, ...]) -> Answer:
    cursor = connection.execute(parsed.text, parameters)
    try:
        description = cursor.description
        if description is None:
            return Answer(rowcount=cursor.rowcount)
        rows = cursor.fetchall()
        columns = tuple([column[0] for column in description]) if rows else ()
        return Answer(columns, rows, len(rows) if parsed.writes else -1)
    finally:
        cursor.close()


def _kept_locked(name: str, seconds: float) -> DatabaseBusyError:
    return DatabaseBusyError(
        f"{name}: another connection kept the database locked for {seconds:.1f} s; nothing happened",
        statement=name,
    )
