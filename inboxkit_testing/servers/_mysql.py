"""A MariaDB or a MySQL for tests, and fresh databases on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, urlsplit, urlunsplit

from inboxkit_testing.servers._errors import ServerUnavailableError
from inboxkit_testing.servers._starting import join_or_start, run_key

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "MARIADB_URL_VARIABLE",
    "MYSQL_FOLDER_VARIABLE",
    "MYSQL_URL_VARIABLE",
    "MysqlServer",
    "mariadb_server",
    "mysql_server",
]

MARIADB_URL_VARIABLE = "INBOXKIT_TEST_MARIADB_URL"
"""Names a server to use in place of a throw-away one: ``mariadb://user@host:port``."""
MYSQL_URL_VARIABLE = "INBOXKIT_TEST_MYSQL_URL"
"""Names a server to use in place of a throw-away one: ``mysql://user@host:port``."""
MYSQL_FOLDER_VARIABLE = "INBOXKIT_MYSQL_DIR"
"""Where a system's files with MySQL in them are, as ``.ci/mysql`` makes them."""
_MYSQL_FOLDER = "/var/cache/inboxkit/mysql"
_SYSTEM = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")

Kind = Literal["mariadb", "mysql"]


@dataclass(frozen=True, slots=True)
class _About:
    title: str
    variable: str
    cure: str
    closing: str
    """The statement that closes the account without a password; ``{secret}``: a new password."""


_ABOUT: dict[Kind, _About] = {
    "mariadb": _About(
        "MariaDB",
        MARIADB_URL_VARIABLE,
        "install mariadb-server",
        "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys';\nFLUSH PRIVILEGES",
    ),
    "mysql": _About(
        "MySQL",
        MYSQL_URL_VARIABLE,
        "run .ci/mysql as root on Debian, or install MySQL",
        "ALTER USER root@localhost {secret}",
    ),
}

_UNKNOWN_SESSION: Final = 1094


class MysqlServer:
    """A server on which tests make databases. Made by `mariadb_server` and `mysql_server`; a context
    manager.

    Attributes:
        kind: ``"mariadb"`` or ``"mysql"``.
        url: With an account that may do everything; names no database.
        folder: Where a throw-away server lives (``data``, ``socket``, ``log``); None: not ours.
    """

    def __init__(
        self, kind: Kind, url: str, *, folder: Path | None = None, users: IO[bytes] | None = None
    ) -> None:
        self.kind: Kind = kind
        self.url = url
        self.folder = folder
        self._users = users
        self._admin: Any = None

    def create_database(self) -> str:
        """Make a database, called by a new uuid, and return its URL."""
        name = f"inboxkit_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, ending sessions that are left in it."""
        name = urlsplit(url).path.lstrip("/")
        listed = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
        for (session,) in self._execute(listed):
            self._execute(f"KILL {session}", may_miss=True)
        self._execute(f"DROP DATABASE IF EXISTS `{name}`")

    @contextmanager
    def database(self) -> Iterator[str]:
        """A database for the time of a block: its URL."""
        url = self.create_database()
        try:
            yield url
        finally:
            self.drop_database(url)

    def socket_url(self, url: str) -> str:
        """The same database of a throw-away server through its Unix socket (``?unix_socket=/path``)."""
        if self.folder is None:
            raise ServerUnavailableError("this server's Unix socket is not known")
        parts = urlsplit(url)
        location = parts.netloc.rpartition("@")[0] + "@"
        query = f"unix_socket={quote(str(self.folder / 'socket' / 's'))}"
        return urlunsplit(parts._replace(netloc=location, query=query))

    def close(self) -> None:
        """Stop using the server; a throw-away one ends with its last user."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        users, self._users = self._users, None
        if users is not None:
            users.close()

    def _execute(self, statement: str, *, may_miss: bool = False) -> list[tuple[Any, ...]]:
        try:
            import pymysql  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ServerUnavailableError(
                f"no driver for {_ABOUT[self.kind].title} is installed: pip install 'inboxkit[mysql]'"
            ) from error
        from inboxkit._db.mysql_url import read_target  # noqa: PLC0415 - when a test runs

        if self._admin is None:
            target = read_target(self.url)
            try:
                self._admin = pymysql.connect(
                    host=target.host,
                    port=target.port,
                    user=target.user,
                    password=target.password,
                    autocommit=True,
                    ssl_disabled=True,
                )
            except pymysql.err.OperationalError as error:
                raise self._unanswered(error) from error
        try:
            with self._admin.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        # As the connection has it: what runs tests inside of tests may have imported the driver anew.
        except self._admin.OperationalError as error:
            if may_miss and error.args[0] == _UNKNOWN_SESSION:
                return []
            raise self._unanswered(error) from error

    def _unanswered(self, error: Exception) -> ServerUnavailableError:
        title = _ABOUT[self.kind].title
        return ServerUnavailableError(f"the {title} for tests does not answer: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        parts = urlsplit(self.url)
        return f"MysqlServer({self.kind}, {parts.hostname}:{parts.port})"


def mariadb_server(run: str | None = None, *, durable: bool = False) -> MysqlServer:
    """The MariaDB of this run: the one that the variable names, else a throw-away one, started at need.

    Args:
        run: As for `postgres_server`.
        durable: As for `postgres_server`.

    Raises:
        ServerUnavailableError: Neither can be had.
    """
    return _server("mariadb", run, durable=durable)


def mysql_server(run: str | None = None, *, durable: bool = False) -> MysqlServer:
    """As `mariadb_server`, for MySQL."""
    return _server("mysql", run, durable=durable)


def _server(kind: Kind, run: str | None, *, durable: bool) -> MysqlServer:
    about = _ABOUT[kind]
    url = os.environ.get(about.variable)
    if url:
        return MysqlServer(kind, url)

    def settings(folder: Path, user: int | None) -> dict[str, Any]:  # noqa: ARG001
        programs = _mariadb() if kind == "mariadb" else _mysql()
        return {"kind": kind, "title": about.title, "closing": about.closing, **programs}

    folder, users = join_or_start(
        f"{kind}{run_key(run)}", settings, variable=about.variable, durable=durable
    )
    port = json.loads((folder / "server.json").read_text())["port"]
    password = json.loads((folder / "settings.json").read_text())["password"]
    url = f"{kind}://inboxkit:{password}@127.0.0.1:{port}"
    return MysqlServer(kind, url, folder=folder, users=users)


def _mariadb() -> dict[str, list[str]]:
    server, installer = _program("mariadbd"), _program("mariadb-install-db")
    if server is None or installer is None:
        raise _missing("mariadb", "no mariadbd and mariadb-install-db were found")
    account = "--auth-root-authentication-method=normal"
    return {
        "server": [server, "--no-defaults"],
        "initialize": [installer, "--no-defaults", account, "--skip-test-db"],
    }


def _mysql() -> dict[str, list[str]]:
    folder = Path(os.environ.get(MYSQL_FOLDER_VARIABLE) or _MYSQL_FOLDER)
    server = _of_other_system(folder)
    if server is None:
        program = _program("mysqld")
        if program is None or _is_mariadb(program):
            raise _missing("mysql", f"no mysqld was found, and none in {folder}")
        server = [program, "--no-defaults"]
    return {"server": server, "initialize": [*server, "--initialize-insecure"]}


def _of_other_system(folder: Path) -> list[str] | None:
    """Run the mysqld of another system's files, with its own libraries; None: there is none."""
    program = folder / "usr" / "sbin" / "mysqld"
    loaders = [*folder.glob("usr/lib64/ld-linux-*.so.*"), *folder.glob("usr/lib/ld-linux-*.so.*")]
    if not program.is_file() or not loaders:
        return None
    libraries = [path.parent for path in folder.glob("usr/lib/*-linux-gnu*/libc.so.6")]
    libraries.append(folder / "usr" / "lib" / "mysql" / "private")
    return [
        *(str(loaders[0]), "--library-path", ":".join(map(str, libraries)), str(program)),
        *("--no-defaults", f"--basedir={folder / 'usr'}"),
        f"--lc-messages-dir={folder / 'usr/share/mysql'}",
        f"--plugin-dir={folder / 'usr/lib/mysql/plugin'}",
    ]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SYSTEM))


def _is_mariadb(program: str) -> bool:
    answer = subprocess.run(  # noqa: S603 - what was found on the path
        [program, "--version"], capture_output=True, text=True, check=False
    )
    return "mariadb" in answer.stdout.lower()


def _missing(kind: Kind, what: str) -> ServerUnavailableError:
    about = _ABOUT[kind]
    return ServerUnavailableError(
        f"no {about.title} for tests: {what}; {about.cure}, or name a server in {about.variable}"
    )
