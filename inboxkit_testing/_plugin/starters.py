"""What the fixtures `inbox_app` and `inbox_world` give to a test: called with a factory of services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from inboxkit import Service
    from inboxkit.database import Database

__all__ = ["Starter"]

T = TypeVar("T")


class Starter(Generic[T]):
    """Makes one thing after another from what makes a service.

    Args:
        fixture: The fixture's name.
        made: What a call makes, for messages.
        make: Makes it.
    """

    def __init__(
        self,
        fixture: str,
        made: str,
        make: Callable[[Callable[[Database], Service]], Awaitable[T]],
    ) -> None:
        self._fixture = fixture
        self._made = made
        self._make = make

    async def __call__(self, service: Callable[[Database], Service]) -> T:
        """Make it.

        Args:
            service: Takes the database that the service is to use, and returns the service.

        Raises:
            TypeError: `service` is not a function.
        """
        if not callable(service):
            raise TypeError(
                f"{self._fixture} takes a function of the database that returns a Service, such as "
                f"`def service(database): return Service(...)`, not {service!r}"
            )
        return await self._make(service)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self._fixture} has no {name!r}: it makes a {self._made}, which may have it: "
            f"`{self._made.lower()} = await {self._fixture}(service)`"
        )
