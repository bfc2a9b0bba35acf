"""Makes running subscriptions of declared ones: looks at their tables, and wires the layers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ._advisory import advisory_keys
from ._core.json_codec import JSON
from ._core.lease import ExpirySteps
from ._core.settlement import Policy
from ._db.handler_transaction import HandlerTransaction
from ._forms import Keys, open_form
from ._including import Included
from ._including_together import left_to_others
from ._runtime.delivery import Delivery, TransactionalDelivery
from ._runtime.plan import Plan, Wrapping
from ._runtime.records import log
from ._runtime.reporting import Outage, Reporter
from ._runtime.room import Room
from ._runtime.subscription import Subscription
from ._sql.check import check_dead_letter, check_groups
from ._sql.dialect import get_dialect
from ._sql.every_group import Others
from ._sql.info import TableInfo
from ._sql.servers import galera_warning, read_is_galera
from .abc import Claimed, ClaimForm
from .errors import DatabaseBusyError, DecodeError, OutcomeUnknownError, StartupError
from .table import row_from

if TYPE_CHECKING:
    from .broker import Broker
    from .database import Database, Transaction

__all__ = ["checked_table", "cluster_warnings", "compose", "form_of"]

T = TypeVar("T")

_QUEUED_PER_WORKER = 4
"""Most rows in work for each keyed worker."""
_LOOKS = 5
"""How often a table is looked at whose connection ends meanwhile."""


async def compose(
    included: Sequence[Included],
    *,
    broker: Broker,
    instance: str,
    state: Any,
    middleware: tuple[Wrapping, ...],
    fail: Callable[[BaseException], None],
    resources: AsyncExitStack,
) -> list[Subscription]:
    """Check the table of every subscription and build what serves it.

    Args:
        included: What was included.
        broker: Its broker, open.
        instance: The service's name.
        state: The deliveries'.
        middleware: Around every handler.
        fail: Called with an error that ends the service.
        resources: What is to be closed, also where the service does not come to serve.

    Raises:
        StartupError: A table cannot be served; the message names subscription, table and cure.
    """
    outage = Outage()
    subscriptions = [
        await _compose_one(
            one,
            others=left_to_others(one, included),
            broker=broker,
            report=Reporter(
                instance,
                one.queue.name,
                broker.database.clock,
                table=one.spec.name,
                outage=outage,
                listeners=broker.listeners,
            ),
            state=state,
            middleware=middleware,
            fail=fail,
            resources=resources,
        )
        for one in included
    ]
    for one, warning in await cluster_warnings(included, broker):
        log(
            logging.WARNING,
            "queue %r: %s",
            one.queue.name,
            warning,
            extra={"queue": one.queue.name},
        )
    return subscriptions


async def cluster_warnings(
    included: Sequence[Included], broker: Broker
) -> list[tuple[Included, str]]:
    """Subscriptions that need what a cluster of several writers does not give, and what to do."""
    database = broker.database
    found = [(one, text) for one in included if (text := galera_warning(one.spec)) is not None]
    if database.dialect != "mysql" or not found:
        return []
    return found if await _looked(partial(database.run, read_is_galera())) else []


async def _compose_one(
    one: Included,
    *,
    others: frozenset[str],
    broker: Broker,
    report: Reporter,
    state: Any,
    middleware: tuple[Wrapping, ...],
    fail: Callable[[BaseException], None],
    resources: AsyncExitStack,
) -> Subscription:
    database = broker.database
    queue = one.queue
    try:
        info = await checked_table(one, broker)
        is_advisory = one.spec.form == "advisory lock"
        keys = await _looked(partial(advisory_keys, database, one.spec)) if is_advisory else None
        if keys is not None:
            resources.callback(keys.close)
        form = form_of(one, others=others, broker=broker, info=info, keys=keys)
    except StartupError as error:
        error.args = (f"subscription {queue.name!r}: {error}", *error.args[1:])
        raise
    is_transactional = one.subscriber.transactional
    is_one_by_one = one.spec.fifo and not one.is_every_group
    plan = Plan(
        queue=queue.name,
        table=one.spec.name,
        group=queue.only_group,
        handler=_handler(one),
        handler_name=one.subscriber.name,
        batch=_batch_size(one),
        decode=_decoder(one),
        make_delivery=_delivery_maker(one, broker, state),
        policy=_policy(one),
        settles_first=_settles_first(one),
        workers=1 if is_one_by_one else (one.workers_by_key or one.workers),
        prefetch=one.prefetch,
        by_key=one.workers_by_key is not None and not is_one_by_one,
        may_claim_beside=not one.spec.fifo and one.spec.partition_key is None,
        poll_interval=queue.poll_interval or broker.poll_interval,
        timeout=one.timeout,
        middleware=tuple(one.each for one in middleware),
        batch_middleware=tuple(one.batch for one in middleware if one.batch is not None),
        make_transaction=partial(HandlerTransaction, database) if is_transactional else None,
        transaction_end=_transaction_end(database) if is_transactional else None,
        transaction_gives_way=_transaction_gives_way(database) if is_transactional else None,
        is_every_group=one.is_every_group,
        dead_letter_table=one.dead_key[0] if one.dead_key is not None else None,
    )
    # Where this process keeps the keys, rows in work take no session of the pool.
    most = _QUEUED_PER_WORKER * plan.workers * (plan.batch or 1)
    is_of_pool = keys is None or is_transactional
    places = database.room if is_of_pool else Room(most)
    subscription = Subscription(
        plan,
        form,
        clock=database.clock,
        random=database.random,
        report=report,
        wakes=database.wakes,
        places=places,
        fail=fail,
    )
    database.holds.add(subscription)
    return subscription


async def checked_table(one: Included, broker: Broker) -> TableInfo:
    """What the database says of a subscription's table, checked with that of its dead letters.

    Raises:
        StartupError: They cannot be served.
    """
    database = broker.database
    info = await _looked(partial(database.describe, one.spec, fresh=True))
    await _looked(partial(_check_dead_letter_table, one, broker, info))
    dead = one.destination.group if one.destination is not None else None
    check_groups(get_dialect(database.dialect), one.spec, info, (one.queue.only_group, dead))
    return info


def form_of(
    one: Included, *, others: frozenset[str], broker: Broker, info: TableInfo, keys: Keys | None
) -> ClaimForm:
    """The claim form of a subscription.

    Args:
        one: What was included.
        others: Groups that it leaves to other subscriptions, where it serves every group.
        broker: Its broker.
        info: What the database says of its table, checked.
        keys: The keys of the database where this process keeps them.

    Raises:
        DialectError: The database, or its version, does not serve the form.
    """
    database = broker.database
    return open_form(
        database,
        one.spec,
        info,
        get_dialect(database.dialect),
        group=one.queue.only_group,
        lease=one.queue.lease or broker.lease,
        cap=one.max_attempts,
        steps=ExpirySteps(database.random.randrange(1000)),
        others=Others(tuple(sorted(others)), one.dead_shape) if one.is_every_group else None,
        keys=keys,
        queue=one.queue.name,
    )


def _transaction_end(database: Database) -> Callable[[], float | None] | None:
    """Only SQLite has one write lock for all."""
    if database.dialect != "sqlite":
        return None
    return lambda: database.holds.transaction_end(database.clock.monotonic())


def _transaction_gives_way(database: Database) -> Callable[[], bool] | None:
    if database.dialect != "sqlite":
        return None
    return lambda: database.holds.must_give_way(database.clock.monotonic())


async def _looked(look: Callable[[], Awaitable[T]]) -> T:
    """Ask what changes nothing: a session that the server ends is no reason not to start."""
    for _ in range(_LOOKS - 1):
        try:
            return await look()
        except (DatabaseBusyError, OutcomeUnknownError) as error:
            log(logging.INFO, "asked again, on another connection: %s", error)
    return await look()


async def _check_dead_letter_table(one: Included, broker: Broker, info: TableInfo) -> None:
    destination = one.destination
    if destination is None or destination.table is None:
        return
    dialect = get_dialect(broker.database.dialect)
    target = replace(one.spec, table=destination.table, schema=destination.schema)
    dead = await broker.database.run(dialect.describe(target))
    check_dead_letter(dialect, one.spec, info, dead, name=destination.name)


def _policy(one: Included) -> Policy:
    return Policy(
        max_attempts=one.max_attempts,
        destination=one.destination,
        on_error=one.on_error,
        on_decode_error=one.on_decode_error,
        has_retry_after=one.spec.retry_after is not None,
        has_attempt=one.spec.attempt is not None,
        is_fifo=one.spec.fifo,
    )


def _batch_size(one: Included) -> int | None:
    """Of a FIFO queue one row is in work: a batch of one."""
    if one.subscriber.batch is not None and one.spec.fifo and not one.is_every_group:
        return 1
    return one.subscriber.batch


def _settles_first(one: Included) -> bool:
    """Whether its rows have an order, or a bound on those in work, that a claim beside a settlement
    would break; a transactional handler settles by itself."""
    is_one_by_one = one.spec.fifo and not one.is_every_group
    return is_one_by_one or one.spec.partition_key is not None or one.subscriber.transactional


def _handler(one: Included) -> Callable[[Any], Awaitable[Any]]:
    function = one.subscriber.function
    if one.subscriber.batch is not None:
        return function
    if one.subscriber.takes_delivery:
        return lambda delivery: function(delivery.message, delivery)
    return lambda delivery: function(delivery.message)


def _decoder(one: Included) -> Callable[[Claimed], tuple[Any, Any]]:
    queue, spec = one.queue, one.spec
    codec = spec.codec if spec.codec is not None else JSON
    message_type = one.subscriber.message_type

    def decode(claimed: Claimed) -> tuple[Any, Any]:
        row = row_from(queue.row if queue.row is not None else spec, claimed.values)
        try:
            if spec.headers is not None:
                _readable(claimed.values[spec.headers.name])
            if spec.payload is None:
                for value in claimed.values.values():
                    _readable(value)
                return row, row
            _readable(claimed.values.get(spec.payload.name))
            if claimed.payload is None:
                raise DecodeError(f"column {spec.payload.name!r} is NULL", where=spec.payload.name)
            return _decode(codec, claimed.payload, message_type), row
        except DecodeError as error:
            raise DecodeError(
                f"queue {queue.name!r}, row {claimed.fence.id!r}: {error}",
                queue=queue.name,
                id=claimed.fence.id,
                where=error.where,
            ) from error

    return decode


def _decode(codec: Any, payload: bytes, message_type: Any) -> Any:
    try:
        return codec.decode(payload, message_type)
    except DecodeError:
        raise
    except Exception as error:
        # A codec of the service's own may raise anything, and its text may show the payload.
        raise DecodeError(
            f"the codec raised {type(error).__name__} while it read the payload", where="$"
        ) from error


def _readable(value: Any) -> None:
    if isinstance(value, DecodeError):
        raise value


def _delivery_maker(one: Included, broker: Broker, state: Any) -> Callable[..., Delivery[Any, Any]]:
    def make(
        *,
        message: Any,
        row: Any,
        id: Any,
        attempt: int | None,
        group: str | None,
        key: Any,
        headers: Mapping[str, str],
        lost: Callable[[], anyio.Event],
        deadline: Callable[[], datetime | None],
        tx: Transaction | None = None,
    ) -> Delivery[Any, Any]:
        kind = Delivery if tx is None else partial(TransactionalDelivery, tx=tx)
        return kind(
            id=id,
            message=message,
            attempt=attempt,
            group=group,
            key=key,
            headers=headers,
            row=row,
            queue=one.queue,
            database=broker.database,
            state=state,
            clock=broker.database.clock,
            lost=lost,
            deadline=deadline,
            publish=broker.publish,
        )

    return make
