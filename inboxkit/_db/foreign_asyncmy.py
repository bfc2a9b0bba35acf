"""A service's own asyncmy connection."""

from __future__ import annotations

from typing import Any, Final

from inboxkit._sql.statement import Answer, Statement
from inboxkit.errors import ConstraintError, DatabaseError

from .mysql_values import compose
from .placeholders import parse

__all__ = ["UTC_ZONE", "ZONE_BACK", "through_asyncmy"]

_NO_BACKSLASHES: Final = 512
"""A flag of the server's status: NO_BACKSLASH_ESCAPES is in the session's SQL mode."""

# Instants are written in UTC, and TIMESTAMP columns read them in the session's time zone.
UTC_ZONE: Final = Statement(
    "time zone",
    "SET @inboxkit_time_zone = @@SESSION.time_zone, time_zone = '+00:00'",
    returns_rows=False,
)
ZONE_BACK: Final = Statement(
    "time zone back", "SET time_zone = @inboxkit_time_zone", returns_rows=False
)


async def through_asyncmy(connection: Any, statement: Statement) -> Answer:
    """Run a statement.

    Raises:
        ConstraintError: A constraint refused it; the driver's own error is the cause.
        DatabaseError: The connection's character set cannot carry every text.
    """
    from asyncmy.errors import IntegrityError  # noqa: PLC0415 - installed, as the connection is of it

    from .asyncmy import query  # noqa: PLC0415

    if not str(connection.character_set_name()).startswith("utf8"):
        raise DatabaseError(
            f"{statement.name}: the connection's charset is {connection.character_set_name()!r}; open "
            "it with charset='utf8mb4'",
            statement=statement.name,
        )
    backslashes = not connection.server_status & _NO_BACKSLASHES
    parsed = parse(statement.text, "mysql")
    text = compose(parsed, statement.parameters, backslashes=backslashes)
    try:
        reply = await query(connection, text)
    except IntegrityError as error:
        raise ConstraintError(str(error), statement=statement.name) from error
    return Answer(reply.columns or (), reply.rows, reply.affected)
