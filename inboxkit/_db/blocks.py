"""What `transaction()`, `connection()` and `running()` return: of use only in ``async with``, and it says so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

__all__ = ["Block"]

T = TypeVar("T")


class Block(AbstractAsyncContextManager[T], Generic[T]):
    """A context manager that tells what it is to whoever uses it otherwise.

    Args:
        manager: Enters and leaves.
        kind: The method's name.
        cure: How it is meant; None: as a transaction or connection is.
    """

    def __init__(
        self, manager: AbstractAsyncContextManager[T], kind: str, *, cure: str | None = None
    ) -> None:
        self._manager = manager
        self._kind = kind
        self._cure = cure

    async def __aenter__(self) -> T:
        return await self._manager.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, traceback)

    @property
    def cure(self) -> str:
        """How it is meant."""
        if self._cure is not None:
            return f"write: {self._cure}"
        name = "tx" if self._kind == "transaction" else "connection"
        return f"write: async with ….{self._kind}() as {name}: await {name}.execute(…)"

    def __await__(self) -> NoReturn:
        raise TypeError(f"{self._kind}() is a block, not awaited: {self.cure}")

    def __enter__(self) -> NoReturn:
        raise TypeError(f"{self._kind}() is an async block: {self.cure}")

    def __exit__(self, *_: object) -> None:
        """Never reached."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name!r} belongs to what {self._kind}() gives inside its block; {self.cure}"
        )

    def __repr__(self) -> str:
        return f"<{self._kind}() outside of async with>"
