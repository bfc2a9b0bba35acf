"""How psycopg reads values here: as asyncpg does, so that one program serves both."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader

from inboxkit._db.instants import FUTURE, PAST

__all__ = ["register_loaders"]


class _InstantLoader(TimestamptzLoader):
    """Aware, in UTC; what `datetime` cannot hold is the end of its time.

    Never raises for a value: the statement has been executed when its answer is read.
    """

    def load(self, data: Buffer) -> datetime:
        text = bytes(data)
        try:
            return super().load(text).astimezone(UTC)
        except (psycopg.DataError, OverflowError, ValueError):
            return PAST if text.startswith(b"-") or text.endswith(b" BC") else FUTURE


def register_loaders(adapters: AdaptersMap) -> None:
    """json and jsonb as text, instants in UTC."""
    for name in ("json", "jsonb"):
        adapters.register_loader(name, TextLoader)
    adapters.register_loader("timestamptz", _InstantLoader)
