"""The tables: what inboxkit serves, in each claim form, and the one that the loops written by hand use.

All have the same columns. Each side has the indexes that it wants: inboxkit those that `inboxkit ddl`
prints, the loops one in the order of their claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from inboxkit import Inbox, InboxSpec, role
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit.abc import ClaimFormName, DialectName

__all__ = ["NAME", "RAW", "ROWS", "AdvisoryRow", "Job", "LeaseRow", "LockedRow", "ddl", "raw_ddl"]

NAME: Final = "bench"
"""The queue's name, which is the group of all rows."""
RAW: Final = "raw_jobs"


@dataclass
class Job:
    """What a handler gets."""

    n: int


class LeaseRow(Inbox, table="lease_jobs"):
    """Claimed under a lease."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class LockedRow(Inbox, table="locked_jobs"):
    """Claimed by its row lock."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class AdvisoryRow(Inbox, table="advisory_jobs", advisory_lock="jobs-{id}"):
    """Claimed by an advisory lock."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


ROWS: Final[dict[ClaimFormName, type[Inbox]]] = {
    "lease": LeaseRow,
    "row lock": LockedRow,
    "advisory lock": AdvisoryRow,
}

_RAW: Final[dict[DialectName, str]] = {
    "postgres": """CREATE TABLE {table} (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL,
        retry_after timestamptz NOT NULL DEFAULT clock_timestamp(),
        attempt integer NOT NULL DEFAULT 1, locked_until timestamptz, payload bytea NOT NULL)""",
    "sqlite": """CREATE TABLE {table} (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, retry_after REAL NOT NULL DEFAULT 0,
        attempt INTEGER NOT NULL DEFAULT 1, locked_until REAL, payload BLOB NOT NULL)""",
    "mysql": """CREATE TABLE {table} (
        id bigint AUTO_INCREMENT PRIMARY KEY, name varchar(255) NOT NULL,
        retry_after datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
        attempt int NOT NULL DEFAULT 1, locked_until datetime(6), payload longblob NOT NULL
        ) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin""",
}


def ddl(dialect: DialectName, spec: InboxSpec) -> Sequence[str]:
    """What `inboxkit ddl` prints for a table."""
    return create_table(get_dialect(dialect), spec)


def raw_ddl(dialect: DialectName) -> Sequence[str]:
    """The table of the loops written by hand, and its index."""
    index = f"CREATE INDEX {RAW}_order ON {RAW} (name, retry_after, id)"
    return [_RAW[dialect].format(table=RAW), index]
