"""Asks a server which sessions wait for locks, and whose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["LockProbe", "open_probe"]


class LockProbe(Protocol):
    """A session of its own. It blocks: everything of the run is asleep when it is asked."""

    def blockers(self, sessions: Sequence[int]) -> list[list[int]]:
        """For each session those whose locks it waits for now; none where it does not wait."""
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

    def close(self) -> None:
        self._connection.close()


class _MysqlProbe:
    """MySQL answers from its performance schema, MariaDB from its information schema and InnoDB's status."""

    _MYSQL = (
        "SELECT r.processlist_id, b.processlist_id FROM performance_schema.data_lock_waits w "
        "JOIN performance_schema.threads r ON r.thread_id = w.requesting_thread_id "
        "JOIN performance_schema.threads b ON b.thread_id = w.blocking_thread_id"
    )
    _MARIADB = (
        "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id "
        "FROM information_schema.innodb_lock_waits w "
        "JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id "
        "JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id"
    )
    _WAITING = re.compile(r"^LOCK WAIT .*\n(?:MySQL|MariaDB) thread id (\d+)", re.MULTILINE)

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

    def blockers(self, sessions: Sequence[int]) -> list[list[int]]:
        found: dict[int, list[int]] = {session: [] for session in sessions}
        for waiting, blocking in self._asked(self._MARIADB if self._is_mariadb else self._MYSQL):
            if waiting in found:
                found[waiting].append(blocking)
        if self._is_mariadb and any(found.values()):
            # The tables of the information schema may be a tenth of a second old; the status is not.
            ((_, _, status),) = self._asked("SHOW ENGINE INNODB STATUS")
            now = {int(number) for number in self._WAITING.findall(status)}
            found = {each: found[each] if each in now else [] for each in found}
        return list(found.values())

    def close(self) -> None:
        self._connection.close()

    def _asked(self, text: str) -> Sequence[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return rows
