"""Which table a published name belongs to."""

from __future__ import annotations

from typing import Any

from ._core.spec import InboxSpec
from .errors import DeclarationError, NoRouteError
from .queue import InboxQueue, table_of

__all__ = ["Routes"]


class Routes:
    """Names and prefixes of queues. An exact name goes before a prefix, a long prefix before a short
    one, the last registered before earlier ones."""

    def __init__(self) -> None:
        self._exact: dict[str, InboxQueue[Any, Any]] = {}
        self._prefixes: dict[str, Any] = {}
        self._messages: dict[tuple[str, str | None], Any] = {}

    def add_queue(self, queue: InboxQueue[Any, Any], message: Any = None) -> None:
        """Route a queue's own name to it.

        Args:
            queue: The queue.
            message: What its handler takes, where the queue does not say; None: not known.
        """
        self._exact[queue.name] = queue
        if message is not None:
            self._messages[queue.spec.name, queue.group] = message

    def message_of(self, queue: InboxQueue[Any, Any]) -> Any:
        """What a queue's messages are; None: not known."""
        if queue.message is not None:
            return queue.message
        return self._messages.get((queue.spec.name, queue.group))

    def add(self, pattern: str, row_or_spec: Any) -> None:
        """Route a name, or with a trailing ``*`` all names that begin so.

        Raises:
            DeclarationError: An empty pattern, or a ``*`` elsewhere than at its end.
        """
        if not isinstance(pattern, str) or not pattern:
            raise DeclarationError(
                f"route() takes a name or a prefix such as 'mail.*', not {pattern!r}"
            )
        prefix, star, rest = pattern.partition("*")
        if rest:
            raise DeclarationError(f"route {pattern!r}: '*' stands only at the end")
        if star:
            self._prefixes.pop(prefix, None)
            self._prefixes[prefix] = row_or_spec
        else:
            self._exact[pattern] = InboxQueue(row_or_spec, pattern)

    def specs(self) -> list[InboxSpec]:
        """The tables that names are routed to, as often as they are."""
        exact = [queue.spec for queue in self._exact.values()]
        return exact + [table_of(row)[1] for row in self._prefixes.values()]

    def find(self, name: str) -> InboxQueue[Any, Any]:
        """The queue of a published name.

        Raises:
            NoRouteError: None serves it.
        """
        if (queue := self._exact.get(name)) is not None:
            return queue
        fitting = [prefix for prefix in self._prefixes if name.startswith(prefix)]
        if fitting:
            return InboxQueue(self._prefixes[max(fitting, key=len)], name)
        known = ", ".join(repr(known) for known in sorted(self._exact)) or "none"
        raise NoRouteError(
            f"no queue is called {name!r} here (known: {known}); include its subscriber, or "
            f"broker.route({name!r}, its row class)"
        )
