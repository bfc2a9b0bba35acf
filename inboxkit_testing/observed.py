"""A driver around another one: records, asks the gate, fails on purpose, and can be killed.

Nothing of it is in the library; it stands at the driver port, between a `Database` and its driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inboxkit.abc import Clock, DialectName, Driver, DriverConnection
from inboxkit.errors import ConnectError

from ._brackets import Block
from ._dropped import DroppedSessions, dropped_sessions_of
from ._observed_connection import ObservedConnection
from .clock import VirtualClock
from .crashing import CrashSwitch
from .faults import Faults
from .hosts import HostClock
from .kept import KeptSessions
from .links import How, Link
from .recording import Recording
from .sessions import end_sessions, session_of

__all__ = ["ObservedDriver"]


class ObservedDriver:
    """A `Driver` around another one.

    Args:
        make: Makes the driver around which it is; called in the event loop, when it is needed.
        dialect: Which SQL that driver speaks.
        clock: The clock of the database: a `VirtualClock`, or a host's view of one.
        instance: Whose database it is; sorts and names its statements at the gate.
        server_url: Where the server can be asked who waits for a lock; None: there is none.
    """

    def __init__(
        self,
        make: Callable[[], Driver],
        *,
        dialect: DialectName,
        clock: VirtualClock | HostClock,
        instance: str = "",
        server_url: str | None = None,
    ) -> None:
        self._make = make
        self._made: Driver | None = None
        self._connections: dict[ObservedConnection, None] = {}
        self._opened = 0
        self.dialect: DialectName = dialect
        self.server_url: Final = server_url
        self.instance: Final = instance
        """Whose database it is."""
        self.time: Final = clock.clock if isinstance(clock, HostClock) else clock
        """The true time."""
        self.clock: Final[Clock] = clock
        """The database's own time."""
        self.recording: Final = Recording(clock)
        """What was sent."""
        self.faults: Final = Faults(dialect)
        """What goes wrong."""
        self.switch: Final = CrashSwitch(self.time)
        """Whether it has crashed."""
        self.link: Final = Link()
        """Whether it is cut from the database."""
        self.kept: KeptSessions | None = None
        """Where sessions come from, and where they go when they are closed; None: from the server, and
        they end."""

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def max_connections(self) -> int | None:
        return self._inner.max_connections

    async def connect(self) -> ObservedConnection:
        await self.check_alive("connect")
        await self.turn("connect", 0)
        while self.link.is_cut:
            if not await self.link.healed():
                raise ConnectError("the test has cut this instance from its database")
            await self.turn("connect", 0)
        await self.check_alive("connect")
        inner, session = await self._open()
        self._opened += 1
        connection = ObservedConnection(self, inner, self._opened, session)
        if self.switch.is_thrown:  # killed while it connected
            connection.terminate()
            await self.switch.stand("connect")
        self._connections[connection] = None
        return connection

    async def _open(self) -> tuple[DriverConnection, int | None]:
        if self.kept is not None:
            return await self.kept.connect(self._inner)
        inner = await self._inner.connect()
        try:
            return inner, await session_of(inner, self.dialect)
        except BaseException:
            inner.terminate()
            raise

    async def aclose(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.aclose()

    def cut(self, how: How) -> None:
        """Let nothing reach the database; where that is to be seen at once, all connections drop."""
        self.link.cut(how)
        if how == "fail":
            for connection in list(self._connections):
                connection.terminate()

    def crash_nowait(self) -> None:
        """Die now: all connections drop, and no statement of this driver is sent any more."""
        self.switch.throw()
        self.link.heal()  # what hangs is as dead as the rest
        for connection in list(self._connections):
            connection.terminate(forget=False)

    async def crash(self) -> None:
        """Die now, and return when the database has noticed: its locks are free, its work is undone.

        The clock stands meanwhile.
        """
        self.crash_nowait()
        sessions = [each.session for each in self._connections if each.session is not None]
        self._connections.clear()
        if sessions:
            with self.time.external("end of the sessions of a crashed instance"):
                await end_sessions(self._inner, sessions, self.dialect, kept=self.kept)
        # SQLite: the threads undo what was open when they end.
        await self.aclose()

    # For the connections.

    @property
    def is_troubled(self) -> bool:
        """Whether something may stand between a statement and the database: the gate, or a trouble."""
        return (
            self.faults.has_any
            or self.switch.is_thrown
            or self.link.how is not None
            or self.time.gate is not None
        )

    async def end_session(self, session: int) -> None:
        """Have the server end one of its sessions, and return when it has."""
        with self.time.external("end of a session"):
            await end_sessions(self._inner, [session], self.dialect, kept=self.kept)

    async def check_alive(self, what: str) -> None:
        """Return, unless this instance is dead."""
        if self.switch.is_thrown:
            await self.switch.stand(what)

    async def turn(
        self, label: str, connection: int, block: Block | None = None, text: str = ""
    ) -> None:
        """Wait at the gate, if there is one."""
        if (gate := self.time.gate) is not None:
            await gate.turn(
                label, instance=self.instance, connection=connection, block=block, text=text
            )

    @property
    def has_dropped(self) -> bool:
        """Whether sessions of its run were dropped that may not have ended."""
        return self.server_url is not None and bool(self._dropped)

    def drop(self, session: int) -> None:
        """A session's connection was dropped: nothing is sent until the server has ended it."""
        if self.server_url is not None:
            self._dropped.add(self.server_url, session)

    async def dropped_ended(self) -> None:
        """Return when its server has ended the sessions that were dropped."""
        if self.server_url is not None and not self.link.is_cut and not self.switch.is_thrown:
            await self._dropped.ended(self.server_url, self._inner, self.time, self.kept)

    def forget(self, connection: ObservedConnection) -> None:
        """It was closed."""
        self._connections.pop(connection, None)

    @property
    def _dropped(self) -> DroppedSessions:
        return dropped_sessions_of(self.time.keeper)

    @property
    def _inner(self) -> Driver:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __repr__(self) -> str:
        of = f" of {self.instance!r}" if self.instance else ""
        return f"<ObservedDriver {self.dialect}{of}>"
