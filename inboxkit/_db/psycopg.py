"""PostgreSQL through psycopg 3, on both backends: ``postgresql+psycopg://``."""

from __future__ import annotations

import psycopg
from psycopg.pq import TransactionStatus

from inboxkit._db.postgres import GRACE, PostgresConnection, rows_written
from inboxkit._db.postgres_errors import NoAnswerError, is_lost, judged, lost
from inboxkit._db.psycopg_session import PsycopgSession, open_session
from inboxkit._db.versions import check_postgres
from inboxkit._sql.postgres.names import quote
from inboxkit._sql.statement import Answer, Statement
from inboxkit.abc import Clock, DialectName, Notification
from inboxkit.errors import ConnectError, DatabaseError, ServerTooOldError

__all__ = ["PsycopgConnection", "PsycopgDriver"]

_OPEN = frozenset({TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR})


class PsycopgConnection(PostgresConnection):
    """One session of psycopg. Its own transactions are not used: under level cancellation they
    leave sessions inside transactions."""

    def __init__(self, session: PsycopgSession, *, clock: Clock, timeout: float) -> None:
        super().__init__(clock, timeout, is_pooled=session.is_pooled)
        self._session = session
        self._server_major = int(session.info.server_version) // 10_000
        self._has_outdated = False
        """Whether psycopg prepared a statement whose plan is out of date."""

    @property
    def is_closed(self) -> bool:
        return self._session.is_lost()

    @property
    def in_transaction(self) -> bool:
        return self._session.pgconn.transaction_status in _OPEN

    @property
    def backend_pid(self) -> int:
        return self._session.pgconn.backend_pid

    @property
    def server_major(self) -> int:
        return self._server_major  # as it was at the start: a dropped session would not say

    async def close(self) -> None:
        with self._clock.external("close"):
            self.terminate()  # libpq says goodbye without waiting

    def terminate(self) -> None:
        self._session.drop()

    async def _send(self, statement: Statement) -> Answer:
        if self._has_outdated and not self.in_transaction:
            await self._forget_prepared()
        try:
            return await self._ask(statement)
        except psycopg.errors.FeatureNotSupported as error:
            # Nothing happened, and outside a transaction it can be said again.
            if not self._is_outdated(error):
                raise
            self._has_outdated = True
            if self.in_transaction:
                raise
        await self._forget_prepared()
        return await self._ask(statement)

    async def _forget_prepared(self) -> None:
        await self._session.execute(b"DEALLOCATE ALL")  # psycopg then forgets them too
        self._has_outdated = False

    def _is_outdated(self, error: BaseException | None) -> bool:
        """A table was altered: "cached plan must not change result type"."""
        return (
            isinstance(error, psycopg.errors.FeatureNotSupported)
            and error.diag.source_function == "RevalidateCachedQuery"
        )

    async def _ask(self, statement: Statement) -> Answer:
        cursor = await self._session.execute(statement.text.encode(), statement.parameters)
        rowcount = rows_written(cursor.statusmessage or "")
        if cursor.description is None:
            return Answer(rowcount=rowcount)
        columns = tuple(column.name for column in cursor.description)
        return Answer(columns, await cursor.fetchall(), rowcount)

    async def _subscribe(self, channel: str) -> None:
        self._session.hear(self._note)
        await self._session.execute(f"LISTEN {quote(channel)}".encode())

    async def _hear(self) -> None:
        await self._session.read()

    def _note(self, channel: str, payload: str) -> None:
        self._heard.append(Notification(channel, payload))

    async def _finish(self, text: str, *, seconds: float) -> str:
        with self._session.finishing(seconds=seconds):
            cursor = await self._session.execute(text.encode())
        return cursor.statusmessage or ""

    def _translated(self, error: Exception, name: str, *, may_commit: bool) -> DatabaseError | None:
        if isinstance(error, NoAnswerError):
            return lost(name, str(error), may_have_happened=may_commit)
        if isinstance(error, UnicodeError | OverflowError):
            return judged(name, None, "an argument cannot be encoded; nothing was sent", None)
        if not isinstance(error, psycopg.Error):
            return None
        diagnostics = error.diag
        text = diagnostics.message_primary or str(error)
        if is_lost(error.sqlstate) or self.is_closed:
            self.terminate()
            return lost(name, text, may_have_happened=may_commit)
        constraint = diagnostics.constraint_name or diagnostics.column_name
        return judged(name, error.sqlstate, text, constraint)


class PsycopgDriver:
    """A `Driver` of PostgreSQL on asyncio and trio.

    Args:
        url: The server's URL.
        clock: Where time comes from.
        timeout: The server's statement timeout, in seconds.
    """

    name = "psycopg"
    dialect: DialectName = "postgres"
    max_connections: int | None = None

    def __init__(self, url: str, *, clock: Clock, timeout: float) -> None:
        self._url = url
        self._clock = clock
        self._timeout = timeout

    async def connect(self) -> PsycopgConnection:
        with self._clock.external("connect"):
            try:
                session = await open_session(
                    self._url, timeout=self._timeout, guard=self._timeout + GRACE
                )
            except (psycopg.Error, OSError, NoAnswerError) as error:
                raise ConnectError(f"cannot connect to PostgreSQL: {error}") from error
        try:
            check_postgres(session.info.server_version // 10_000)
        except ServerTooOldError:
            session.drop()
            raise
        # Time must not pass for the statement's waiting alone.
        session.stopping = lambda: self._clock.external("stop")
        return PsycopgConnection(session, clock=self._clock, timeout=self._timeout)

    async def aclose(self) -> None:
        """Nothing is kept."""
