"""Statements that wait for a lock which an idle transaction of the same run holds.

They are in flight, so time would stand and the gate stay shut until they are answered; but they are
answered only when somebody else goes on. As PostgreSQL's own isolation tester does, the kit asks the
server who waits for whom when nothing has come for a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ._lock_probes import LockProbe, open_probe

if TYPE_CHECKING:
    from ._observed_connection import ObservedConnection
    from ._timekeeper import Timekeeper

__all__ = ["LockWaits", "lock_waits_of"]

_of_run: WeakKeyDictionary[Timekeeper, LockWaits] = WeakKeyDictionary()


def lock_waits_of(keeper: Timekeeper) -> LockWaits:
    """The one of this run."""
    found = _of_run.get(keeper)
    if found is None:
        found = _of_run[keeper] = LockWaits()
        keeper.are_lock_waits = found.are_all
        keeper.endings.append(found.close)
        keeper.stall_notes.append(found.foreign)
    return found


class LockWaits:
    """The statements of a run that are in flight on servers, and who of them waits for a lock."""

    def __init__(self) -> None:
        self._in_flight: dict[ObservedConnection, tuple[str, str]] = {}
        self._sessions: set[tuple[str, int]] = set()
        self._probes: dict[str, LockProbe] = {}

    def sent(self, connection: ObservedConnection, url: str, name: str) -> None:
        """A statement of that name is in flight there."""
        if connection.session is not None:
            self._sessions.add((url, connection.session))
        self._in_flight[connection] = (url, name)

    def answered(self, connection: ObservedConnection) -> None:
        """It no longer is."""
        self._in_flight.pop(connection, None)

    def are_all(self, brackets: int) -> bool:
        """Whether all that is in flight waits for locks of sessions of this run.

        Args:
            brackets: How much is in flight; where that is more than statements, the answer is no.
        """
        if not self._in_flight or brackets != len(self._in_flight):
            return False
        waiting = list(self._in_flight.items())
        for url in {url for _, (url, _) in waiting}:
            sessions = [each.session for each, (where, _) in waiting if where == url]
            if not self._wait_for_ours(url, [each for each in sessions if each is not None]):
                return False
        for connection, _ in waiting:
            connection.has_waited = True
        return True

    def _wait_for_ours(self, url: str, sessions: Sequence[int]) -> bool:
        # In the loop's thread, and it blocks: everything of this run is asleep anyway.
        return all(
            blockers and all((url, blocker) in self._sessions for blocker in blockers)
            for blockers in self._probe(url).blockers(sessions)
        )

    def foreign(self) -> str:
        """For a stall report: who waits for a lock of a session that is not of this run."""
        notes = []
        for connection, (url, name) in self._in_flight.items():
            if connection.session is None:
                continue
            try:
                (blockers,) = self._probe(url).blockers([connection.session])
                others = [each for each in blockers if (url, each) not in self._sessions]
                told = " and ".join(self._probe(url).told(each) for each in others)
            except Exception as error:  # noqa: BLE001 - whatever ails the server, it is told below
                return f"the server could not be asked who waits for whom: {error!r}"
            if told:
                notes.append(f"{name!r} waits for a lock of somebody else, {told}")
        return "; ".join(notes)

    def _probe(self, url: str) -> LockProbe:
        if url not in self._probes:
            self._probes[url] = open_probe(url)
        return self._probes[url]

    def close(self) -> None:
        """The run is over."""
        for probe in self._probes.values():
            probe.close()
        self._probes.clear()
