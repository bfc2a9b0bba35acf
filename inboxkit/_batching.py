"""`@subscriber(queue, batch=n)`: what the handler's one parameter says."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from ._core.annotations import show, strip
from ._core.handler import may_take, method_hint, parameters, resolve_parameter
from ._runtime.delivery import Delivery
from .errors import DeclarationError
from .queue import InboxQueue, check_message, takes_row

__all__ = ["batch_message_type", "check_batch_size"]


def check_batch_size(queue: InboxQueue[Any, Any], size: object) -> None:
    """Refuse what is no number of rows.

    Raises:
        DeclarationError: It is no int of at least 1.
    """
    if type(size) is not int or size < 1:
        raise DeclarationError(
            f"subscriber() of queue {queue.name!r}: batch must be an int of at least 1, not {size!r}"
        )


def batch_message_type(
    label: str, queue: InboxQueue[Any, Any], function: Any, local: Mapping[str, Any]
) -> Any:
    """What payloads decode to, as the queue or the handler's parameter says.

    Args:
        label: How messages name the handler.
        queue: Its queue.
        function: The handler.
        local: Names of the scope that it was subscribed in.

    Raises:
        DeclarationError: It does not take a list of the queue's deliveries, or nothing more.
    """
    first, second = parameters(label, function)
    wanted = f"{first.name}: {_shown(queue)}"
    if second is not None:
        raise DeclarationError(
            f"{label + method_hint(first)}: a batch handler takes the list of deliveries alone, so nobody "
            f"would fill {second.name!r}; give it a default"
        )
    row: Any = Mapping if queue.row is None else queue.row
    known = row if queue.row_mode else queue.message
    if first.annotation is inspect.Parameter.empty:
        return _known(label, known, wanted)
    try:
        annotation = resolve_parameter(label, function, first, local)
    except DeclarationError:
        if known is None:
            raise
        return known  # for type checkers alone: the queue says what it is
    taken_row, message = _read(label, annotation, wanted)
    if taken_row is not Any and not takes_row(queue, taken_row):
        raise DeclarationError(
            f"{label} takes deliveries of rows {show(taken_row)}, but the queue's are "
            f"{show(row)}; write {wanted}"
        )
    if known is None:
        if message is None:
            return _known(label, known, wanted)
        check_message(queue, message)
        return message
    if queue.row_mode and message is not None and not takes_row(queue, message):
        check_message(queue, message)
    if not queue.row_mode and message is not None and not may_take(message, known):
        raise DeclarationError(
            f"{label} takes deliveries of {show(message)}, but the queue's messages are {show(known)}; "
            f"write {wanted}"
        )
    return known


def _read(label: str, annotation: Any, wanted: str) -> tuple[Any, Any]:
    """The row and the message of a list's deliveries; Any and None where they are not said."""
    kind = strip(annotation)
    if kind is Any or kind is object:
        return Any, None
    origin = get_origin(kind) or kind
    (element, *_) = get_args(kind) or (Any,)
    element = strip(element)
    is_list = isinstance(origin, type) and issubclass(list, origin)
    if not is_list or not (
        element in (Any, object) or (get_origin(element) or element) is Delivery
    ):
        raise DeclarationError(
            f"{label}: with batch its parameter is the list of deliveries, not {show(annotation)}; "
            f"write {wanted}"
        )
    row, message = get_args(element) or (Any, None)
    return row, message


def _known(label: str, known: Any, wanted: str) -> Any:
    if known is None:
        raise DeclarationError(
            f"{label}: neither the queue nor its parameter says what the messages are; write {wanted}"
        )
    return known


def _shown(queue: InboxQueue[Any, Any]) -> str:
    row = "Mapping[str, Any]" if queue.row is None else show(queue.row)
    message = row if queue.row_mode else queue.shown_message
    return f"list[Delivery[{row}, {'YourMessage' if queue.message is None and not queue.row_mode else message}]]"
