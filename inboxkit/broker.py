"""The broker: which queues there are, and how messages get into them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from . import events
from ._core.annotations import show
from ._core.async_only import AsyncOnly
from ._core.fitting import fits
from ._core.handler import is_async
from ._core.lease import whole_seconds
from ._db.foreign_sqlalchemy import after_foreign_commit
from ._notifying import tell_on_foreign
from ._publishing import Publication, Publisher, PublishMiddleware, row_of, wrapped
from ._routing import Routes
from ._runtime.listeners import Listeners
from ._runtime.records import log, logger
from .database import Connection, Database, Transaction
from .errors import ClosedError, DeclarationError, EncodeError
from .insert import Connectable, insert_rows
from .queue import InboxQueue
from .table import Inbox

if TYPE_CHECKING:
    from ._core.spec import InboxSpec

__all__ = ["Broker", "Publication"]

RowT = TypeVar("RowT")
MessageT = TypeVar("MessageT")


class Broker(AsyncOnly):
    """Publishes messages into queues, and wakes those who serve them in this process.

    Nothing connects here: `async with Broker(…)`, or a Service, opens the database.

    Args:
        database: A `Database`, which stays the caller's to close if the caller opened it; or a URL.
        lease: How long a claim holds unrenewed, where a queue says nothing. Whole seconds, rounded
            up, at least one.
        poll_interval: How long a subscription sleeps at most between looks at its table, where its
            queue says nothing.
        listen_notify: On PostgreSQL: `publish` and `insert_rows` on the database's connections notify
            the services of other processes, and a service listens, on one connection beside the pool.
            Only ever a hint: what is missed is found by the poll. The channel is the table's schema
            and name, such as ``public.jobs``, and the payload the group, or empty for all of the
            table; so rows written by other means are heard of where the table has a trigger that does
            ``PERFORM pg_notify(TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME, NEW.name)``. It needs a direct
            connection, or a pooler in session mode.

    Raises:
        DeclarationError: A setting is of the wrong type, zero or negative; or `listen_notify` on another
            database than PostgreSQL.
    """

    def __init__(
        self,
        database: Database | str,
        *,
        lease: timedelta = timedelta(seconds=30),
        poll_interval: timedelta = timedelta(seconds=1),
        listen_notify: bool = False,
    ) -> None:
        if not isinstance(database, Database | str):
            raise DeclarationError(f"Broker takes a Database or a URL, not {database!r}")
        self.database: Database = database if isinstance(database, Database) else Database(database)
        self.lease: timedelta = whole_seconds(lease)
        if not isinstance(poll_interval, timedelta) or poll_interval <= timedelta(0):
            raise DeclarationError(
                f"poll_interval must be a positive timedelta, not {poll_interval!r}"
            )
        self.poll_interval = poll_interval
        self.listen_notify = listen_notify
        if listen_notify:
            if self.database.dialect != "postgres":
                raise DeclarationError(
                    f"listen_notify needs PostgreSQL, and {self.database!r} is {self.database.dialect}; "
                    "leave it out, and shorten poll_interval where rows of other processes wait too long"
                )
            self.database.notifies = True
        self.instance = ""
        """Whose it is, in events: the name of the service that serves it."""
        self.listeners: Listeners = Listeners()
        """Who is told of events: the functions of `Service.on_event`."""
        self._middleware: tuple[PublishMiddleware, ...] = ()
        self._publish: Publisher = self._insert
        self._routes = Routes()
        self._opened_database = False
        self._is_open = False
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether `open` was called and `aclose` was not."""
        return self._is_open

    async def open(self) -> None:
        """Open the database, unless it is open already.

        Raises:
            StartupError: It cannot be reached, or its driver is not installed.
        """
        if not self.database.is_open:
            await self.database.open()
            self._opened_database = True
        self._is_open, self._is_closed = True, False

    async def aclose(self) -> None:
        """Publish no more; close the database if this broker opened it."""
        self._is_open, self._is_closed = False, True
        if self._opened_database:
            self._opened_database = False
            await self.database.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def specs(self) -> list[InboxSpec]:
        """The tables of all that can be published here, as often as they are named."""
        return self._routes.specs()

    def route(self, pattern: str, row: type[Inbox] | InboxSpec) -> None:
        """Tell where names go that have no handler here.

        Args:
            pattern: A queue's name, or a prefix with ``*`` at its end. An exact name goes before a
                prefix, a longer prefix before a shorter one, the last registered before earlier ones.
            row: The table's class or description.

        Raises:
            DeclarationError: The pattern is empty, or has its ``*`` elsewhere.
        """
        self._routes.add(pattern, row)

    def use(self, middleware: PublishMiddleware) -> PublishMiddleware:
        """Wrap every `publish`: ``async (publication, call_next) -> id``; the first used is outermost.

        `call_next(publication)` inserts, and returns the row's id or raises what `publish` does. It may
        be given another publication, `dataclasses.replace(publication, columns=…)`. Rows of `insert_rows`
        do not come by here.

        Raises:
            DeclarationError: It is no async function.
        """
        if not is_async(middleware):
            raise DeclarationError(
                f"Broker.use() takes an async function of a publication and call_next, not "
                f"{middleware!r}; write async def"
            )
        self._middleware = (*self._middleware, middleware)
        self._publish = wrapped(self._insert, self._middleware)
        return middleware

    def add_queue(self, queue: InboxQueue[Any, Any], message: Any = None) -> None:
        """Route a queue's own name to it; `Service.include` does this for each subscription.

        Args:
            queue: The queue.
            message: What its handler takes, where the queue does not say; None: not known.
        """
        self._routes.add_queue(queue, message)

    @overload
    async def publish(
        self,
        queue: InboxQueue[RowT, MessageT],
        message: MessageT,
        *,
        within: Connectable | None = None,
        **columns: Any,
    ) -> Any: ...
    @overload
    async def publish(
        self, queue: str, message: Any, *, within: Connectable | None = None, **columns: Any
    ) -> Any: ...
    async def publish(
        self,
        queue: InboxQueue[Any, Any] | str,
        message: Any,
        *,
        within: Connectable | None = None,
        **columns: Any,
    ) -> Any:
        """Insert a message as a row of its queue and wake the queue's subscriptions in this process.

        Args:
            queue: The queue, or a name that is routed.
            message: What the handler will get. For a table without payload: the row itself.
            within: A connection or transaction to insert on, as `insert_rows` takes them; the wake then
                comes after its commit where it is inboxkit's own or SQLAlchemy's, else the next poll
                finds the row. None: a connection of the broker's database.
            columns: Values of other columns, such as ``priority=0``.

        Returns:
            The row's id.

        Raises:
            NoRouteError: No queue is called so.
            EncodeError: The message is of another type than the queue's, or it or a value cannot be
                written; nothing was sent.
            ClosedError: The broker is closed, or its database not open.
            DatabaseError: Nothing was inserted; for OutcomeUnknownError it may have been.
        """
        if self._is_closed:
            raise ClosedError(
                "this broker is closed; publish before its Service stops, or open it again"
            )
        target = self._routes.find(queue) if isinstance(queue, str) else queue
        return await self._publish(Publication(target, message, columns, within))

    async def _insert(self, publication: Publication) -> Any:
        target, within = publication.queue, publication.within
        try:
            self._check_message(target, publication.message)
            row = row_of(publication)
            if within is not None:
                (id,) = await insert_rows(within, row)
            else:
                async with self.database.connection() as connection:
                    (id,) = await insert_rows(connection, row)
        except EncodeError as error:
            error.queue = target.name
            raise
        tell = partial(self._tell, target, id)
        if isinstance(within, Transaction):
            within.after_commit(tell)
        elif within is None or isinstance(within, Connection):
            tell()
        else:
            await self._follow_foreign(within, target, tell)
        return id

    def _check_message(self, queue: InboxQueue[Any, Any], message: Any) -> None:
        declared = self._routes.message_of(queue)
        if declared is None or queue.row_mode or fits(message, declared):
            return
        raise EncodeError(
            f"queue {queue.name!r} takes messages of type {show(declared)}, not "
            f"{type(message).__qualname__}; nothing was published",
            table=queue.spec.name,
            where="$",
        )

    def _tell(self, queue: InboxQueue[Any, Any], id: Any) -> None:
        """A row is there for all to see."""
        if not self.listeners.all and not logger.isEnabledFor(logging.DEBUG):
            return
        event = events.Published(
            at=self.database.clock.now(),
            instance=self.instance,
            queue=queue.name,
            id=id,
            table=queue.spec.name,
            group=queue.only_group,
        )
        self.listeners.tell(event)
        log(
            logging.DEBUG,
            "queue %r: published row %r",
            queue.name,
            id,
            extra={
                "event": event,
                "queue": queue.name,
                "row_id": id,
                "attempt": None,
                "group": event.group,
            },
        )

    async def _follow_foreign(
        self, connection: Any, queue: InboxQueue[Any, Any], tell: Callable[[], None]
    ) -> None:
        if self.listen_notify:
            await tell_on_foreign(connection, self.database, queue.spec, queue.group)
        table = queue.spec.name
        await after_foreign_commit(
            connection, (self.database, table, queue.group), partial(self.wake, queue)
        )
        await after_foreign_commit(connection, tell, tell)

    def wake(self, queue: InboxQueue[Any, Any] | str) -> None:
        """Look for due rows now: for rows that were written by other means.

        Raises:
            NoRouteError: No queue is called so.
        """
        target = self._routes.find(queue) if isinstance(queue, str) else queue
        self.database.wakes.notify(target.spec.name, target.only_group)

    def __repr__(self) -> str:
        return f"Broker({self.database!r})"
