"""One instance of a service in a `World`: a process, as far as its database can tell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Literal

import anyio
from anyio.abc import TaskStatus

from inboxkit import Database, Handle, Service
from inboxkit.abc import Clock
from inboxkit.errors import DeclarationError

from .clock import VirtualClock
from .databases import ObservedDatabase, open_test_database
from .hosts import HostClock
from .marks import Crashed, note_calls, send
from .processes import current_process

__all__ = ["Instance", "State"]

State = Literal["starting", "running", "stopping", "stopped", "failed", "crashed"]


class Instance:
    """One running service, from its start to its end.

    Args:
        name: Its name, which its service and its database get too.
        number: Which start of the world's this is; seeds its randomness.
        clock: Its host's.
        time: The true time.
        url: Where the database is.
        pool_size: Most connections at once.
        factory: Makes the service.
    """

    def __init__(
        self,
        name: str,
        number: int,
        *,
        clock: VirtualClock | HostClock,
        time: VirtualClock,
        url: str,
        pool_size: int,
        factory: Callable[[Database], Service],
    ) -> None:
        self.name = name
        self.clock: Clock = clock
        """Its own, which may be wrong."""
        self.database: ObservedDatabase = open_test_database(
            url,
            clock=clock,
            instance=name,
            pool_size=pool_size,
            random=Random(f"{name} {number}"),  # noqa: S311
        )
        """Its own view of the database: `faults` and `recording` are of this instance alone."""
        self.service: Service = made_by(factory, self.database, name)
        self.error: BaseException | None = None
        """What ended it, where nobody asked it to end."""
        self.error_was_told = False
        self.when_crashed: Callable[[Instance], None] = lambda _: None
        """Called when it is killed."""
        self._time = time
        self._scope = anyio.CancelScope()
        self._leave = anyio.Event()
        self._ended = anyio.Event()
        self._buried = anyio.Event()
        self._handle: Handle | None = None
        note_calls(self.service)
        self.database.observed.switch.when_thrown = self._die

    @property
    def state(self) -> State:
        """What became of it."""
        if self.is_crashed:
            return "crashed"
        if self._ended.is_set():
            return "stopped" if self.error is None else "failed"
        if self._leave.is_set():
            return "stopping"
        return "starting" if self._handle is None else "running"

    @property
    def is_up(self) -> bool:
        """Whether it runs: neither ended nor crashed; it may be stopping."""
        return self.state in ("running", "stopping")

    @property
    def is_crashed(self) -> bool:
        """Whether it was killed."""
        return self.database.is_crashed

    @property
    def is_cut(self) -> bool:
        """Whether it cannot reach its database."""
        return self.database.observed.link.is_cut

    def true_now(self) -> datetime:
        """The world's time."""
        return self._time.now()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until it is told to leave, or crashes.

        Raises:
            BaseException: What kept it from starting. What ends it later is kept in `error`.
        """
        current_process.set(self)
        cancelled = anyio.get_cancelled_exc_class()
        try:
            with self._scope:
                async with self.database, self.service.running() as self._handle:
                    task_status.started()
                    await self._leave.wait()
        except (cancelled, KeyboardInterrupt):
            raise
        except BaseException as error:
            if self.is_crashed:
                return  # the dead raise what they like
            if self._handle is None:
                raise
            self.error = error
        finally:
            self._ended.set()
            if self.is_crashed and self._handle is None:
                task_status.started()

    async def bury(self) -> None:
        """Wait for the crash, and for the database to notice it, without time passing."""
        await self.database.crash()
        self._buried.set()

    async def buried(self) -> None:
        """Return when the database has let go of it."""
        await self._buried.wait()

    def ask_to_stop(self, *, cancel: bool) -> None:
        """Let it end in order: with `cancel` it does not wait for its handlers."""
        if cancel and self._handle is not None:
            self._handle.cancel()
        self._leave.set()

    async def ended(self) -> None:
        """Return when it has ended."""
        await self._ended.wait()

    def _die(self) -> None:
        text = f"crashed{self.database.faults.place_of_crash()}"
        send(Crashed(at=self.clock.now(), instance=self.name, queue="", text=text))
        self._scope.cancel()
        self.when_crashed(self)

    def __repr__(self) -> str:
        return f"<Instance {self.name!r} {self.state}>"


def made_by(factory: Callable[[Database], Service], database: Database, name: str) -> Service:
    """A service of that name over that database.

    Raises:
        DeclarationError: The factory makes something else.
    """
    service = factory(database)
    if not isinstance(service, Service):
        raise DeclarationError(
            f"the factory of a World returns a Service, not {service!r}: factory(database) -> Service"
        )
    if service.broker.database is not database:
        raise DeclarationError(
            f"the factory of a World made {service!r} over another database than the one that it was "
            "given, so its instances could be neither cut off nor crashed: use Broker(database)"
        )
    service.name = service.broker.instance = name
    return service
