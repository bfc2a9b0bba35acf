"""A MariaDB or a MySQL to measure on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

import pymysql

from inboxkit._db.mysql_url import read_target
from inboxkit.abc import DialectName
from inboxkit_testing.servers import MysqlServer, mariadb_server, mysql_server

from .places import Counts
from .tables import NAME

__all__ = ["MysqlPlace", "connection_settings"]

_MAKERS: Final = {"mariadb": mariadb_server, "mysql": mysql_server}
_SHOWN: Final = (
    *("version", "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog", "log_bin"),
    *("innodb_flush_method", "innodb_buffer_pool_size"),
)
_AT_ONCE: Final = 1000


class MysqlPlace:
    """A database of its own on a server that keeps what it commits.

    Args:
        name: ``"mariadb"`` or ``"mysql"``.
        url: A server's, with an account that may create databases; None: a throw-away one is started.

    Raises:
        SystemExit: The server may lose what it commits.
    """

    dialect: DialectName = "mysql"

    def __init__(self, name: str, url: str | None) -> None:
        self.name = name
        with ExitStack() as opened:
            made = _MAKERS[name]
            kind: Any = name
            server = made(durable=True) if url is None else MysqlServer(kind, url)
            opened.callback(server.close)
            self.url = opened.enter_context(server.database())
            self._admin = pymysql.connect(**connection_settings(self.url), autocommit=True)
            opened.callback(self._admin.close)
            if self.value("SELECT @@innodb_flush_log_at_trx_commit") != 1:
                raise SystemExit(
                    f"innodb_flush_log_at_trx_commit is not 1 on this {name}: its figures would be of no use"
                )
            self._opened = opened.pop_all()

    def script(self, *statements: str) -> None:
        with self._admin.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def value(self, query: str) -> Any:
        with self._admin.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()[0][0]

    def drop(self, table: str) -> None:
        self.script(f"DROP TABLE IF EXISTS {table}")

    def fill(self, table: str, count: int) -> None:
        with self._admin.cursor() as cursor:
            for start in range(0, count, _AT_ONCE):
                numbers = range(start, min(count, start + _AT_ONCE))
                values = ", ".join(f"""('{NAME}', '{{"n":{n}}}')""" for n in numbers)
                cursor.execute(f"INSERT INTO {table} (name, payload) VALUES {values}")

    def tidy(self, table: str) -> None:
        self.value(f"ANALYZE TABLE {table}")

    def counts(self) -> Counts:
        # Com_commit counts COMMIT alone: a statement that commits by itself is in no counter but its own.
        return Counts(self._status("Questions"), self._status("Com_commit"))

    def _status(self, name: str) -> int:
        with self._admin.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
            return int(cursor.fetchall()[0][1])

    def measuring(self) -> AbstractContextManager[object]:
        return nullcontext()

    def unflushed(self) -> AbstractContextManager[bool]:
        return nullcontext(False)

    def settings(self) -> Mapping[str, str]:
        return {name: str(self.value(f"SELECT @@{name}")) for name in _SHOWN}

    def close(self) -> None:
        self._opened.close()


def connection_settings(url: str) -> dict[str, Any]:
    """What asyncmy and PyMySQL connect with."""
    target = read_target("mysql" + url[url.index(":") :])
    settings: dict[str, Any] = {"user": target.user, "password": target.password}
    settings |= {"database": target.database, "charset": "utf8mb4"}
    if target.socket is not None:
        return settings | {"unix_socket": target.socket}
    return settings | {"host": target.host, "port": target.port}
