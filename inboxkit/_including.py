"""What `Service.include` was told, checked: everything that can be known before a database is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ._core.backoff import Backoff
from ._core.group_shape import PLACE, GroupShape
from ._core.settlement import Destination, FailurePolicy
from ._core.spec import InboxSpec
from .errors import DeclarationError
from .every_group import EveryGroup
from .queue import InboxQueue
from .subscriber import Subscriber

__all__ = ["Included", "check_included"]

_FAILURE_NAMES = ("drop", "stop")


@dataclass(frozen=True, slots=True)
class Included:
    """One subscription, as declared."""

    subscriber: Subscriber[Any, Any]
    workers: int
    workers_by_key: int | None
    prefetch: int
    max_attempts: int | None
    destination: Destination | None
    on_error: FailurePolicy
    on_decode_error: FailurePolicy
    timeout: timedelta | None

    @property
    def queue(self) -> InboxQueue[Any, Any]:
        """The queue that it serves."""
        return self.subscriber.queue

    @property
    def spec(self) -> InboxSpec:
        """The queue's table."""
        return self.subscriber.queue.spec

    @property
    def is_every_group(self) -> bool:
        """Whether it serves all groups of its table."""
        return isinstance(self.queue, EveryGroup)

    @property
    def key(self) -> tuple[str, str | None]:
        """Table and group: what no second subscription of a broker may serve. All of a table's groups
        have the key of a table without any."""
        return self.spec.name, self.queue.only_group

    @property
    def dead_shape(self) -> GroupShape | None:
        """How the groups of its dead letters are called, where each group has its own."""
        return None if self.destination is None else self.destination.shape

    @property
    def dead_key(self) -> tuple[str, str | None] | None:
        """Table and group of its dead letters; None also where each group has its own."""
        if self.destination is None or self.destination.shape is not None:
            return None
        if self.destination.group is not None:
            return self.spec.name, self.destination.group
        return self.destination.name, None

    def has_dead_letters_of(self, target: Included) -> bool:
        """Whether another subscription reads this one's dead letters."""
        if self.dead_shape is None:
            return target.key == self.dead_key
        group = target.queue.only_group
        return (
            target.spec.name == self.spec.name and group is not None and self.dead_shape.fits(group)
        )


def check_included(
    subscriber: Subscriber[Any, Any],
    *,
    workers: int,
    workers_by_key: int | None,
    prefetch: int,
    max_attempts: int | None,
    dead_letter: str | InboxQueue[Any, Any] | None,
    on_error: FailurePolicy,
    on_decode_error: FailurePolicy,
    timeout: timedelta | None,
) -> Included:
    """Check the settings of one subscription by themselves.

    Raises:
        DeclarationError: They contradict each other or the table; the message names the cure.
    """
    if not isinstance(subscriber, Subscriber):
        raise DeclarationError(
            f"include() takes a function decorated by @subscriber(queue), not {subscriber!r}"
        )
    where = f"subscription {subscriber.queue.name!r}"
    spec = subscriber.queue.spec
    _check_workers(where, spec, workers, workers_by_key)
    _check_batch(where, subscriber, workers_by_key)
    _check_prefetch(where, subscriber, workers_by_key, prefetch)
    _check_cap(where, spec, max_attempts, dead_letter)
    for name, policy in (("on_error", on_error), ("on_decode_error", on_decode_error)):
        if not isinstance(policy, Backoff) and policy not in _FAILURE_NAMES:
            raise DeclarationError(
                f"{where}: {name} must be a Backoff, 'drop' or 'stop', not {policy!r}"
            )
    if timeout is not None and (not isinstance(timeout, timedelta) or timeout <= timedelta(0)):
        raise DeclarationError(f"{where}: timeout must be a positive timedelta, not {timeout!r}")
    return Included(
        subscriber,
        workers,
        workers_by_key,
        prefetch,
        max_attempts,
        None if dead_letter is None else _destination(where, subscriber.queue, dead_letter),
        on_error,
        on_decode_error,
        timeout,
    )


def _check_workers(where: str, spec: InboxSpec, workers: int, by_key: int | None) -> None:
    for name, count in (("workers", workers), ("workers_by_key", by_key)):
        if count is not None and (type(count) is not int or count < 1):
            raise DeclarationError(f"{where}: {name} must be an int of at least 1, not {count!r}")
    if by_key is None:
        return
    if workers != 1:
        raise DeclarationError(f"{where} has both workers and workers_by_key; give one of them")
    if spec.partition_key is None:
        raise DeclarationError(
            f"{where}: workers_by_key needs a partition key, which table {spec.name!r} does not "
            "have; give one of its columns role.partition_key()"
        )


def _check_batch(where: str, subscriber: Subscriber[Any, Any], by_key: int | None) -> None:
    if subscriber.batch is not None and by_key is not None:
        raise DeclarationError(
            f"{where}: {subscriber.name!r} takes batches, and rows of many keys are in one: "
            "workers_by_key would not keep the order of a key's rows; give workers in its place, or "
            "leave batch out"
        )


def _check_prefetch(
    where: str, subscriber: Subscriber[Any, Any], by_key: int | None, prefetch: int
) -> None:
    if type(prefetch) is not int or prefetch < 0:
        raise DeclarationError(f"{where}: prefetch must be an int of at least 0, not {prefetch!r}")
    if prefetch == 0:
        return
    spec = subscriber.queue.spec
    if spec.form != "lease":
        raise DeclarationError(
            f"{where}: prefetch is of the lease form; table {spec.name!r} is claimed by {spec.form}, where "
            "each row in work keeps a connection; give more workers in its place, or give the table "
            "role.locked_until()"
        )
    if spec.fifo:
        raise DeclarationError(
            f"{where}: table {spec.name!r} has FIFO groups, of which one row at a time is claimed, so there "
            "is nothing to prefetch; leave prefetch out"
        )
    if by_key is not None:
        raise DeclarationError(
            f"{where} has both prefetch and workers_by_key, whose workers have rows queued as it is; "
            "give one of them"
        )
    if subscriber.transactional:
        raise DeclarationError(
            f"{where}: {subscriber.name!r} is transactional, so each of its rows in work keeps a "
            "connection; give more workers in place of prefetch"
        )


def _check_cap(
    where: str, spec: InboxSpec, cap: int | None, dead_letter: str | InboxQueue[Any, Any] | None
) -> None:
    if (cap is None) != (dead_letter is None):
        missing = "dead_letter" if dead_letter is None else "max_attempts"
        raise DeclarationError(
            f"{where}: max_attempts and dead_letter come together; {missing} is missing"
        )
    if cap is None:
        return
    if type(cap) is not int or cap < 1:
        raise DeclarationError(f"{where}: max_attempts must be an int of at least 1, not {cap!r}")
    if spec.attempt is None:
        raise DeclarationError(
            f"{where}: max_attempts needs an attempt column, which table {spec.name!r} does not "
            "have; add one (integer, default 1) and give it role.attempt()"
        )


def _destination(
    where: str, queue: InboxQueue[Any, Any], dead_letter: str | InboxQueue[Any, Any]
) -> Destination:
    spec = queue.spec
    if isinstance(queue, EveryGroup):
        return _shape(where, spec, dead_letter)
    if isinstance(dead_letter, EveryGroup):
        raise DeclarationError(
            f"{where}: its dead letters go to one group or table, not to every group of "
            f"{dead_letter.spec.name!r}; name one"
        )
    if isinstance(dead_letter, InboxQueue):
        target = dead_letter.spec
        if spec.group is not None and target.name != spec.name:
            raise DeclarationError(
                f"{where}: table {spec.name!r} has groups, so its dead letters go to another group of "
                f"it; queue {dead_letter.name!r} is of table {target.name!r}"
            )
        if spec.group is not None:
            dead_letter = dead_letter.name
        else:
            return _other_table(where, spec, Destination(table=target.table, schema=target.schema))
    if not isinstance(dead_letter, str) or not dead_letter:
        raise DeclarationError(
            f"{where}: dead_letter must be a name or a queue, not {dead_letter!r}"
        )
    if spec.group is not None:
        if dead_letter == queue.name:
            raise DeclarationError(
                f"{where}: its dead letters would go back into itself; name another group"
            )
        return Destination(group=dead_letter)
    schema, dot, table = dead_letter.rpartition(".")
    if not table or (dot and not schema) or "." in schema:
        raise DeclarationError(
            f"{where}: table {spec.name!r} has no groups, so dead_letter names a table, as "
            f"'table' or 'schema.table'; {dead_letter!r} does not"
        )
    return _other_table(where, spec, Destination(table=table, schema=schema or spec.schema))


def _shape(where: str, spec: InboxSpec, dead_letter: object) -> Destination:
    shape = GroupShape.read(dead_letter) if isinstance(dead_letter, str) else None
    if shape is None:
        raise DeclarationError(
            f"{where} serves every group of table {spec.name!r}, so its dead_letter is a name with "
            f"{PLACE} in it once, such as '{PLACE}.dead' (of group 'acme': 'acme.dead'), not "
            f"{dead_letter!r}"
        )
    return Destination(shape=shape)


def _other_table(where: str, spec: InboxSpec, destination: Destination) -> Destination:
    if destination.name == spec.name:
        raise DeclarationError(
            f"{where}: its dead letters would go back into table {spec.name!r}; name another table"
        )
    return destination
