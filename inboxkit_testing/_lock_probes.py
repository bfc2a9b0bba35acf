"""Asks a server which sessions wait for locks, and whose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

__all__ = ["LockProbe", "open_probe"]


class LockProbe(Protocol):
    """A session of its own. It blocks: everything of the run is asleep when it is asked."""

    def blockers(self, sessions: Sequence[int]) -> list[list[int]]:
        """For each session those whose locks it waits for now; none where it does not wait."""
        ...

    def told(self, session: int) -> str:
        """Who that session is and what it does, or did last, for a reader."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


def open_probe(url: str) -> LockProbe:
    """Connect to a server."""
    if not url.startswith("mysql:"):
        return _PostgresProbe(url)
    return _MysqlProbe(url)


class _PostgresProbe:
    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415 - only where a server is tested

        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)

    def blockers(self, sessions: Sequence[int]) -> list[list[int]]:
        answers = self._connection.execute(
            "SELECT pg_blocking_pids(pid) FROM unnest(%s::int[]) AS pid", (list(sessions),)
        )
        return [blockers for (blockers,) in answers.fetchall()]

    def told(self, session: int) -> str:
        found = self._connection.execute(
            "SELECT application_name, usename, state, query FROM pg_stat_activity WHERE pid = %s",
            (session,),
        ).fetchone()
        if found is None:
            return f"pid {session}, which has ended"
        program, user, state, query = found
        return f"pid {session} ({program or user}, {state}): {_shortened(query)}"

    def close(self) -> None:
        self._connection.close()


class _MysqlProbe:
    """MySQL answers from its performance schema, MariaDB by InnoDB's status: its information schema may
    be a tenth of a second old."""

    _WAITS = (
        "SELECT r.processlist_id, b.processlist_id FROM performance_schema.data_lock_waits w "
        "JOIN performance_schema.threads r ON r.thread_id = w.requesting_thread_id "
        "JOIN performance_schema.threads b ON b.thread_id = w.blocking_thread_id"
    )

    def __init__(self, url: str) -> None:
        import pymysql  # noqa: PLC0415 - only where a server is tested

        from inboxkit._db.mysql_url import read_target  # noqa: PLC0415

        target = read_target(url)
        self._connection: Any = pymysql.connect(
            host=target.host,
            port=target.port,
            unix_socket=target.socket,
            user=target.user,
            password=target.password,
            autocommit=True,
            ssl_disabled=True,
        )
        ((version,),) = self._asked("SELECT VERSION()")
        self._is_mariadb = "mariadb" in version.lower()
        if self._is_mariadb:
            self._asked("SET GLOBAL innodb_status_output_locks = ON")

    def blockers(self, sessions: Sequence[int]) -> list[list[int]]:
        if self._is_mariadb:
            ((_, _, status),) = self._asked("SHOW ENGINE INNODB STATUS")
            waits = _waits_in(status)
        else:
            waits = set(self._asked(self._WAITS))
        return [[holder for waiter, holder in waits if waiter == each] for each in sessions]

    def told(self, session: int) -> str:
        found = self._asked(
            "SELECT user, command, info FROM information_schema.processlist "
            f"WHERE id = {int(session)}"
        )
        if not found:
            return f"session {session}, which has ended"
        ((user, command, query),) = found
        return f"session {session} ({user}, {command}): {_shortened(query or self._last(session))}"

    def _last(self, session: int) -> str:
        """What an idle session ran last; MariaDB keeps no account of it unless it is told to."""
        found = self._asked(
            "SELECT s.sql_text FROM performance_schema.events_statements_current s "
            "JOIN performance_schema.threads t ON t.thread_id = s.thread_id "
            f"WHERE t.processlist_id = {int(session)} AND s.sql_text IS NOT NULL"
        )
        return str(found[0][0]) if found else "(not known)"

    def close(self) -> None:
        self._connection.close()

    def _asked(self, text: str) -> Sequence[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _shortened(query: str) -> str:
    text = " ".join(query.split())
    return repr(text if len(text) <= _LONGEST_QUERY else f"{text[:_LONGEST_QUERY]}…")


_LONGEST_QUERY: Final = 200
_TRANSACTION: Final = re.compile(r"^---TRANSACTION \(?(\w+)|^MariaDB thread id (\d+)", re.MULTILINE)
_LOCK: Final = re.compile(
    r"^(?:TABLE LOCK|RECORD LOCKS .*? of) table (?P<table>.*) trx id (?P<transaction>\d+) .*?"
    r"(?P<waits> waiting)?$",
    re.MULTILINE,
)


def _waits_in(status: str) -> set[tuple[int, int]]:
    """Who waits for whom by InnoDB's status: for all who have locks on the table of the one that is
    waited for, which of them it is is not said."""
    session_of: dict[str, int] = {}
    transaction = ""
    for found in _TRANSACTION.finditer(status):
        if found[1] is not None:
            transaction = found[1]
        else:
            session_of[transaction] = int(found[2])
    holders: dict[str, set[int]] = {}
    waiters: set[tuple[int, str]] = set()
    for lock in _LOCK.finditer(status):
        session = session_of.get(lock["transaction"])
        if session is None:
            continue
        if lock["waits"]:
            waiters.add((session, lock["table"]))
        else:
            holders.setdefault(lock["table"], set()).add(session)
    return {
        (session, holder)
        for session, table in waiters
        for holder in holders.get(table, set()) - {session}
    }
