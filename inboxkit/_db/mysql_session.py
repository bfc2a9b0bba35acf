"""A session with MariaDB or MySQL as a driver's library keeps it: sends, waits within bounds, stops."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio

from inboxkit._db.mysql_errors import NoAnswerError, is_lost, number_of
from inboxkit._db.shield import LAST_WORD, outlast
from inboxkit._db.versions import check_mysql
from inboxkit.abc import Clock

__all__ = [
    "IN_TRANSACTION",
    "NO_BACKSLASHES",
    "WHO",
    "Call",
    "MysqlSession",
    "Reply",
    "guard_of",
    "session_setup",
]

GRACE: Final = 2.0
"""Seconds that the server has beyond the statement timeout, which it watches itself, to say so."""

IN_TRANSACTION: Final = 1
NO_BACKSLASHES: Final = 512
"""Bits of the status that comes with each answer."""

_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)
_INTERRUPTED: Final = 1317
# A transaction that keeps a row idles for as long as its handler takes.
_MAY_IDLE: Final = ", ".join(
    f"idle_{kind}transaction_timeout = 0" for kind in ("", "readonly_", "write_")
)
WHO: Final = b"SELECT VERSION(), CONNECTION_ID(), @@max_allowed_packet"
"""Asked first in each session."""
_LONGEST_IDLE: Final = 28800
"""Seconds; the default of the servers, which some shorten."""
_VERSION: Final = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered, its values decoded."""

    columns: tuple[str, ...] | None
    """None: no rows, but a count of them."""
    rows: Sequence[tuple[Any, ...]]
    affected: int


class Call(Protocol):
    """Something that a driver's library does, in a task or a thread of its own."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended: with a result, or with an error."""
        ...

    async def wait(self) -> None:
        """Wait for its end; a cancellation ends the waiting alone."""
        ...

    def result(self) -> Any:
        """What it returned; raises its error."""
        ...

    async def abandon(self) -> None:
        """See that it ends soon, after what it waits for was cut off."""
        ...


class MysqlSession(ABC):
    """One session.

    Args:
        clock: What every exchange with the server is bracketed by.
        guard: Seconds after which an unanswered statement is stopped.
        number: The server's number of the session.
        most_bytes: Of a statement; the server ends the session of a longer one.
    """

    def __init__(self, clock: Clock, guard: float, number: int, most_bytes: int) -> None:
        self._clock = clock
        self._guard = guard
        self._number = number
        self._most_bytes = most_bytes

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True once the session has ended."""

    @property
    @abstractmethod
    def _status(self) -> int:
        """The bits that came with the last answer."""

    @abstractmethod
    def _start(self, text: bytes) -> Call:
        """Send a statement; the result is a `Reply`."""

    @abstractmethod
    def _start_killing(self) -> Call:
        """Stop, by another session, the statement that runs in this one; a second at most."""

    @abstractmethod
    def terminate(self) -> None:
        """Drop the session at once."""

    async def _refused(self) -> BaseException | None:
        """Called when the server has refused a statement; a cancellation meanwhile is handed back."""
        return None

    async def _ask(self, text: bytes) -> Reply:
        """Run a statement. When this raises, it has ended on the server, or the connection is closed."""
        call = self._start(text)
        interruption: BaseException | None = None
        has_ended = False
        try:
            with anyio.move_on_after(self._guard):
                while not call.is_done:
                    await call.wait()
                has_ended = True
        except anyio.get_cancelled_exc_class() as error:
            interruption = error
        if not has_ended:
            has_answered, later = await self._stop(call)
            interruption = interruption or later
            if not has_answered:
                raise interruption or NoAnswerError(f"no answer within {self._guard:g} s")
        return await self._reply(call, interruption, self._guard)

    async def _finish(self, text: bytes, *, seconds: float) -> Reply:
        """Run COMMIT or ROLLBACK whatever cancels the task."""
        call = self._start(text)
        interruption = await _ended(call, seconds)
        return await self._reply(call, interruption, seconds)

    async def _reply(self, call: Call, interruption: BaseException | None, seconds: float) -> Reply:
        if not call.is_done:
            self.terminate()
            await call.abandon()
            raise interruption or NoAnswerError(f"no answer within {seconds:g} s")
        reply: Reply | None = None
        try:
            reply = call.result()
        except Exception as error:
            later = await self._look_after(error)
            interruption = interruption or later
            if interruption is None:
                raise
        if interruption is not None:
            raise interruption
        assert reply is not None
        return reply

    async def _look_after(self, error: Exception) -> BaseException | None:
        if is_lost(number_of(error)):
            self.terminate()
            return None
        return await self._refused()

    async def _stop(self, call: Call) -> tuple[bool, BaseException | None]:
        """Have the statement stopped, and wait for its end; a second for both.

        Where that does not suffice the connection is dropped.

        Returns:
            Whether it was answered; and a cancellation that came from outside meanwhile.
        """
        killing = self._start_killing()

        async def wait() -> None:
            await (call if killing.is_done else killing).wait()

        def is_over() -> bool:
            return killing.is_done and call.is_done

        with self._clock.external("stop"):  # time must not pass for the statement's waiting alone
            interruption = await outlast(wait, is_over, seconds=LAST_WORD, is_hasty=True)
            has_answered = call.is_done
            if is_over():
                # The stop may have come too late for this statement, and must not meet another.
                later = await self._probe()
                return True, interruption or later
            self.terminate()
            for each in (killing, call):
                if not each.is_done:
                    await each.abandon()
        return has_answered, interruption

    async def _probe(self) -> BaseException | None:
        """Bring the status up to date; the connection is dropped where that fails."""
        if self.is_closed:
            return None
        interruption: BaseException | None = None
        for _ in range(2):
            call = self._start(b"DO 0")
            interruption = await _ended(call, LAST_WORD)
            try:
                if call.is_done:
                    call.result()
                    return interruption
                await call.abandon()
            except Exception as error:  # noqa: BLE001 - any means the same
                if number_of(error) == _INTERRUPTED:  # the stop that came too late
                    continue
            break
        self.terminate()
        return interruption


async def _ended(call: Call, seconds: float) -> BaseException | None:
    return await outlast(call.wait, lambda: call.is_done, seconds=seconds, is_hasty=True)


def guard_of(timeout: float) -> float:
    """Seconds after which a statement is stopped that the server itself should have stopped."""
    return timeout + GRACE


def session_setup(version: str, timeout: float) -> bytes:
    """What a session is told first.

    Args:
        version: What the server says of itself.
        timeout: Seconds that a statement may take.

    Raises:
        ServerTooOldError: The server is.
    """
    is_mariadb = "mariadb" in version.lower()
    found = _VERSION.match(version)
    major, minor, patch = (int(part) for part in found.groups()) if found else (0, 0, 0)
    check_mysql("MariaDB" if is_mariadb else "MySQL", (major, minor, patch))
    # Whole seconds; also while a table is altered.
    patience = max(1, math.ceil(timeout))
    # Under REPEATABLE READ, the usual default, a locking read also locks the gaps between rows, and so
    # every insert. MariaDB has MySQL's name for it since 11.1.
    isolation = (
        "tx_isolation" if is_mariadb and (major, minor) < (11, 1) else "transaction_isolation"
    )
    longest = (
        f"max_statement_time = {timeout:.3f}, {_MAY_IDLE}"
        if is_mariadb
        else f"max_execution_time = {max(1, round(timeout * 1000))}"
    )
    return (
        f"SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = '{_SQL_MODE}', "
        f"{isolation} = 'READ-COMMITTED', "
        f"innodb_lock_wait_timeout = {patience}, lock_wait_timeout = {patience}, {longest}, "
        # A session that holds a row is idle for as long as its handler works.
        f"wait_timeout = CAST(GREATEST(@@SESSION.wait_timeout, {_LONGEST_IDLE}) AS UNSIGNED)"
    ).encode()
