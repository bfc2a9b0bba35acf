"""Notifications: channels, and what is sent on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inboxkit._sql.info import TableInfo
from inboxkit._sql.statement import Statement
from inboxkit.errors import DeclarationError

__all__ = ["IS_READ_ONLY", "channel_of", "notify", "payload_of"]

_LONGEST_CHANNEL: Final = 63
_LONGEST_PAYLOAD: Final = 7999
"""Bytes; the server refuses more."""

# An unnest, so that one statement tells of all groups of a transaction.
_NOTIFY: Final = (
    "SELECT pg_notify(told.channel, told.payload) "
    "FROM unnest($1::text[], $2::text[]) AS told(channel, payload)"
)

IS_READ_ONLY: Final = Statement(
    "listen check", "SELECT current_setting('transaction_read_only')::boolean"
)
"""In recovery too, as on a standby."""


def channel_of(info: TableInfo) -> str:
    """The channel of a table: its schema and name as the server has them, such as ``public.jobs``.

    A trigger of any table calls it ``TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME``.

    Raises:
        DeclarationError: The server takes no channel of that length.
    """
    channel = f"{info.schema}.{info.table}"
    if (length := len(channel.encode())) > _LONGEST_CHANNEL:
        raise DeclarationError(
            f"listen_notify: the channel of table {info.table!r} would be {channel!r} of {length} bytes, "
            f"and PostgreSQL takes {_LONGEST_CHANNEL}; shorten the table's or the schema's name, or "
            "leave listen_notify out"
        )
    return channel


def payload_of(group: str | None) -> str:
    """What tells of new rows of a group; empty: look at all of the table."""
    if group is None or "\0" in group or len(group.encode()) > _LONGEST_PAYLOAD:
        return ""
    return group


def notify(told: Iterable[tuple[str, str]]) -> Statement:
    """Tell channels and payloads; the server sends them after the commit."""
    pairs = list(told)
    return Statement("notify", _NOTIFY, ([one for one, _ in pairs], [two for _, two in pairs]))
