"""What the subscriptions of one service mean for each other: whose rows are whose."""

from __future__ import annotations

from collections.abc import Sequence

from ._core.handler import handler_name
from ._including import Included
from ._runtime.plan import Wrapping
from .errors import DeclarationError

__all__ = ["check_middleware", "check_together", "left_to_others"]


def check_together(included: Sequence[Included]) -> None:
    """Check all subscriptions of one broker against each other.

    Raises:
        DeclarationError: Two serve one queue, dead letters form a loop, or a cap can never be met.
    """
    by_key: dict[tuple[str, str | None], Included] = {}
    for one in included:
        other = by_key.setdefault(one.key, one)
        if other is not one:
            raise DeclarationError(
                f"two subscriptions serve {_place(one.key)}: {other.subscriber.name!r} and "
                f"{one.subscriber.name!r}; a row goes to one of them, so include only one"
            )
    for one in included:
        _check_loop(one, by_key)
        if one.is_every_group:
            _check_columns(one, included)
        for target in included:
            if one.has_dead_letters_of(target):
                _check_cap_of_dead_letters(one, target)


def check_middleware(included: Sequence[Included], middleware: Sequence[Wrapping]) -> None:
    """Check that no handler goes without a middleware.

    Raises:
        DeclarationError: A handler takes batches, and a middleware single deliveries alone.
    """
    batched = [one.subscriber for one in included if one.subscriber.batch is not None]
    for one in middleware:
        if batched and one.batch is None:
            raise DeclarationError(
                f"subscription {batched[0].queue.name!r}: {batched[0].name!r} takes batches, and the "
                f"middleware {handler_name(one.each)!r} single deliveries; say what goes around batches: "
                f"use({handler_name(one.each)}, batch=…), an async function of the list and call_next"
            )


def left_to_others(one: Included, included: Sequence[Included]) -> frozenset[str]:
    """Groups of its table that a subscription of every group does not serve: those with their own
    subscription, and the dead letters of others."""
    table = one.spec.name
    keys = {key for other in included for key in (other.key, other.dead_key) if key is not None}
    return frozenset(group for name, group in keys if name == table and group is not None)


def _check_columns(one: Included, included: Sequence[Included]) -> None:
    """It can leave groups to others only where these have the same groups."""
    assert one.spec.group is not None
    for other in included:
        if other.spec.name != one.spec.name or other.spec.group is None:
            continue
        if other.spec.group.name != one.spec.group.name:
            raise DeclarationError(
                f"subscription {one.queue.name!r} serves every group of table {one.spec.name!r} by "
                f"column {one.spec.group.name!r}, and {other.queue.name!r} one by column "
                f"{other.spec.group.name!r}: a row would belong to both; describe the table once"
            )


def _check_cap_of_dead_letters(one: Included, target: Included) -> None:
    if target.max_attempts is None or one.max_attempts is None:
        return
    if target.max_attempts <= one.max_attempts:
        raise DeclarationError(
            f"subscription {target.queue.name!r} reads the dead letters of {one.queue.name!r}, "
            f"which arrive with {one.max_attempts + 1} attempts counted: its max_attempts="
            f"{target.max_attempts} must be greater than {one.max_attempts}"
        )


def _check_loop(start: Included, by_key: dict[tuple[str, str | None], Included]) -> None:
    path = [start.key]
    current: Included | None = start
    while current is not None and current.dead_key is not None:
        if current.dead_key in path:
            names = " -> ".join(_place(key) for key in [*path, current.dead_key])
            raise DeclarationError(
                f"dead letters form a loop: {names}; let one of them end elsewhere"
            )
        path.append(current.dead_key)
        current = by_key.get(current.dead_key)


def _place(key: tuple[str, str | None]) -> str:
    table, group = key
    return f"table {table!r}" if group is None else f"group {group!r} of table {table!r}"
