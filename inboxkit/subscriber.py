"""`@subscriber`: a queue and the function that handles its messages."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, Literal, overload

from typing_extensions import ParamSpec, TypeVar

from inboxkit._batching import batch_message_type, check_batch_size
from inboxkit._core.annotations import show, strip
from inboxkit._core.handler import (
    handler_name,
    is_async,
    may_take,
    method_hint,
    parameters,
    resolve_parameter,
)
from inboxkit._core.outcomes import Outcome
from inboxkit._runtime.delivery import Delivery, TransactionalDelivery
from inboxkit.errors import DeclarationError
from inboxkit.queue import InboxQueue, check_message, takes_row

__all__ = ["Subscriber", "subscriber"]

RowT = TypeVar("RowT", default=Any)
MessageT = TypeVar("MessageT", default=Any)
P = ParamSpec("P", default=...)
ResultT_co = TypeVar(
    "ResultT_co",
    bound=Outcome | Sequence[Outcome] | None,
    covariant=True,
    default=Outcome | Sequence[Outcome] | None,
)
"""Covariant, or `Service.include` would take no handler that is declared to return an Outcome."""
ResultT = TypeVar("ResultT", bound=Outcome | None)
BatchResultT = TypeVar("BatchResultT", bound=Outcome | Sequence[Outcome] | None)


class Subscriber(Generic[RowT, MessageT, P, ResultT_co]):
    """A handler and its queue; made by `subscriber`. Calling it calls the function."""

    queue: InboxQueue[RowT, MessageT]
    function: Callable[P, Coroutine[Any, Any, ResultT_co]]
    """The handler as it was written."""
    name: str
    """The handler's name, for logs and tests."""
    message_type: Any
    """What payloads are decoded to; the row's class (Mapping for a table described by hand) in row mode."""
    takes_delivery: bool
    """Whether the function is called with the delivery too."""
    batch: int | None
    """Most deliveries that the function takes at once, as a list; None: one message at a time."""
    transactional: bool
    """Whether the delivery has a transaction, which the ack commits."""

    def __init__(
        self,
        queue: InboxQueue[RowT, MessageT],
        function: Callable[P, Coroutine[Any, Any, ResultT_co]],
        *,
        message_type: Any,
        takes_delivery: bool,
        batch: int | None = None,
        transactional: bool = False,
    ) -> None:
        self.queue = queue
        self.function = function
        self.name = handler_name(function)
        self.message_type = message_type
        self.takes_delivery = takes_delivery
        self.batch = batch
        self.transactional = transactional
        functools.update_wrapper(self, function, updated=())

    @property
    def row_mode(self) -> bool:
        """Whether the first argument is the row itself: the table has no payload."""
        return self.queue.row_mode

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ResultT_co:
        """Call the handler, without queue or database."""
        return await self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Subscriber {self.name} of {self.queue!r}>"


class _Decorator(Generic[RowT, MessageT]):
    """Takes the handler; its overloads are the two shapes that a handler can have."""

    def __init__(self, queue: InboxQueue[RowT, MessageT]) -> None:
        self._queue = queue

    @overload
    def __call__(
        self, function: Callable[[MessageT], Coroutine[Any, Any, ResultT]], /
    ) -> Subscriber[RowT, MessageT, [MessageT], ResultT]: ...
    @overload
    def __call__(
        self,
        function: Callable[[MessageT, Delivery[RowT, MessageT]], Coroutine[Any, Any, ResultT]],
        /,
    ) -> Subscriber[RowT, MessageT, [MessageT, Delivery[RowT, MessageT]], ResultT]: ...
    def __call__(self, function: Any, /) -> Any:
        return _subscribe(self._queue, function, sys._getframe(1).f_locals)


class _BatchDecorator(Generic[RowT, MessageT]):
    """Takes the handler of batches."""

    def __init__(self, queue: InboxQueue[RowT, MessageT], batch: int) -> None:
        self._queue = queue
        self._batch = batch

    def __call__(
        self,
        function: Callable[[list[Delivery[RowT, MessageT]]], Coroutine[Any, Any, BatchResultT]],
        /,
    ) -> Subscriber[RowT, MessageT, [list[Delivery[RowT, MessageT]]], BatchResultT]:
        local = sys._getframe(1).f_locals
        made: Any = _subscribe(self._queue, function, local, batch=self._batch)
        return made  # type: ignore[no-any-return]


class _TransactionalDecorator(Generic[RowT, MessageT]):
    """Takes a handler that has a transaction."""

    def __init__(self, queue: InboxQueue[RowT, MessageT]) -> None:
        self._queue = queue

    def __call__(
        self,
        function: Callable[
            [MessageT, TransactionalDelivery[RowT, MessageT]], Coroutine[Any, Any, ResultT]
        ],
        /,
    ) -> Subscriber[RowT, MessageT, [MessageT, TransactionalDelivery[RowT, MessageT]], ResultT]:
        local = sys._getframe(1).f_locals
        made: Any = _subscribe(self._queue, function, local, transactional=True)
        return made  # type: ignore[no-any-return]


@overload
def subscriber(
    queue: InboxQueue[RowT, MessageT],
    /,
    *,
    batch: None = None,
    transactional: Literal[False] = False,
) -> _Decorator[RowT, MessageT]: ...
@overload
def subscriber(
    queue: InboxQueue[RowT, MessageT], /, *, batch: int, transactional: Literal[False] = False
) -> _BatchDecorator[RowT, MessageT]: ...
@overload
def subscriber(
    queue: InboxQueue[RowT, MessageT], /, *, batch: None = None, transactional: Literal[True]
) -> _TransactionalDecorator[RowT, MessageT]: ...
def subscriber(queue: Any, /, *, batch: int | None = None, transactional: bool = False) -> Any:
    """Make an async function the handler of a queue.

    Its first parameter is the message (the row, on a table without payload); a second one, annotated
    `Delivery`, is the context. It returns an outcome, or None to ack. Further parameters need defaults
    and are never given.

    With `batch` it is called with a list of deliveries, in claim order, as one claim took them: so many
    as are due, never waiting for more. It returns one outcome for all, None to ack all, or a list with
    one outcome for each. In a list of another length nothing tells which outcome is whose: every
    delivery has failed. An element that is no outcome fails its own delivery alone. An exception fails
    all, each by its own attempt. A delivery whose hold is lost has its `lost` set and nothing is
    written for it; the handler is cancelled once that is so for all. In the row lock form the
    settlements of a batch are committed together: where one fails, all rows are handed out again, one
    by one.

    Args:
        queue: Whose rows it handles.
        batch: Most rows of one call, at least 1; of a FIFO queue there is never more than one. None:
            one message a call.
        transactional: Give it a transaction that its ack commits, as `delivery.tx`; the second parameter
            is then annotated `TransactionalDelivery`. Not with `batch`.

    Raises:
        DeclarationError: The queue is none; or, when the function is given, it cannot be its handler.
    """
    if not isinstance(queue, InboxQueue):
        raise DeclarationError(
            f'subscriber() takes an InboxQueue, not {queue!r}; write @subscriber(InboxQueue(Row, "name"))'
        )
    if not isinstance(transactional, bool):
        raise DeclarationError(f"transactional must be True or False, not {transactional!r}")
    if batch is None:
        return _TransactionalDecorator(queue) if transactional else _Decorator(queue)
    if transactional:
        raise DeclarationError(
            f"queue {queue.name!r}: a transaction belongs to one delivery, so transactional=True and "
            "batch do not go together; leave one of them out"
        )
    check_batch_size(queue, batch)
    return _BatchDecorator(queue, batch)


def _subscribe(
    queue: InboxQueue[Any, Any],
    function: Any,
    local: Mapping[str, Any],
    *,
    batch: int | None = None,
    transactional: bool = False,
) -> Any:
    if isinstance(function, Subscriber):
        raise DeclarationError(
            f"{function.name} is a subscriber of {function.queue.name!r} already; give each its own "
            f"function, or subscriber(queue)({function.name}.function)"
        )
    label = f"handler {handler_name(function)} of queue {queue.name!r}"
    if not is_async(function):
        raise DeclarationError(f"{label} is not async; write async def")
    if batch is not None:
        kind = batch_message_type(label, queue, function, local)
        return Subscriber(queue, function, message_type=kind, takes_delivery=False, batch=batch)
    first, second = parameters(label, function)
    takes_delivery = second is not None
    if second is not None:
        _check_delivery(
            label + method_hint(first), function, second, local, transactional=transactional
        )
    elif transactional:
        raise DeclarationError(
            f"{label} is transactional, but nothing gives it its transaction; add a second parameter "
            "delivery: TransactionalDelivery"
        )
    return Subscriber(
        queue,
        function,
        message_type=_message_type(label, queue, function, first, local),
        takes_delivery=takes_delivery,
        transactional=transactional,
    )


def _check_delivery(
    label: str,
    function: Any,
    parameter: inspect.Parameter,
    local: Mapping[str, Any],
    *,
    transactional: bool,
) -> None:
    wanted = TransactionalDelivery if transactional else Delivery
    if parameter.annotation is parameter.empty:
        raise DeclarationError(
            f"{label}: its second parameter {parameter.name!r} has no type; write "
            f"{parameter.name}: {wanted.__name__}"
        )
    annotation = resolve_parameter(label, function, parameter, local)
    kind = strip(annotation)
    kind = getattr(kind, "__origin__", None) or kind
    if kind is TransactionalDelivery and not transactional:
        raise DeclarationError(
            f"{label}: its second parameter {parameter.name!r} is a TransactionalDelivery; write "
            "@subscriber(queue, transactional=True)"
        )
    if kind is not wanted:
        raise DeclarationError(
            f"{label}: its second parameter {parameter.name!r} is {show(annotation)}; write "
            f"{parameter.name}: {wanted.__name__}, or give it a default"
        )


def _message_type(
    label: str,
    queue: InboxQueue[Any, Any],
    function: Any,
    parameter: inspect.Parameter,
    local: Mapping[str, Any],
) -> Any:
    row: Any = Mapping if queue.row is None else queue.row
    known = row if queue.row_mode else queue.message
    if parameter.annotation is parameter.empty:
        if known is None:
            raise DeclarationError(
                f"{label}: neither the queue nor the parameter {parameter.name!r} says what the message "
                f"is; write {parameter.name}: YourMessage"
            )
        return known
    try:
        annotation = resolve_parameter(label, function, parameter, local)
    except DeclarationError:
        if known is None:
            raise
        return known  # for type checkers alone: the queue says what it is
    if queue.row_mode and not takes_row(queue, annotation):
        check_message(queue, annotation)
    if known is None:
        check_message(queue, annotation)
        return annotation
    if not queue.row_mode and not may_take(annotation, known):
        raise DeclarationError(
            f"{label} takes {show(annotation)}, but the queue's messages are {show(known)}; change one "
            f"of them"
        )
    return known
