"""Who keeps PostgreSQL from cleaning up: a claim walks the dead rows that an old snapshot keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inboxkit._sql.statement import Reading, Script, Statement, Steps

__all__ = ["Snapshot", "oldest_snapshot"]

# A transaction with an id of its own holds the horizon back as one with a snapshot does. Vacuum passes over its own
# workers. By the server's time: the holders live in it. Ordered by age, not by xmin: xids wrap, and the age is
# what somebody can act on.
_TEXT: Final = """\
SELECT a.pid, a.usename::text, a.application_name, a.state,
 extract(epoch FROM statement_timestamp() - a.xact_start)::float8 AS age
 FROM pg_stat_activity AS a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
 AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
 AND a.backend_type <> 'autovacuum worker' AND a.xact_start IS NOT NULL
 UNION ALL
 SELECT NULL, p.owner::text, p.gid, 'prepared', extract(epoch FROM statement_timestamp() - p.prepared)::float8
 FROM pg_prepared_xacts AS p WHERE p.database = current_database()
 ORDER BY 5 DESC LIMIT 1"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The oldest transaction of this database that keeps dead rows from being removed."""

    age: float
    """Seconds since it began, by the server's clock; 0 where there is none."""
    pid: int | None = None
    """The backend's; None for a prepared transaction, which has none."""
    user: str | None = None
    application: str | None = None
    """Its application_name; a prepared transaction's identifier."""
    state: str | None = None
    """As pg_stat_activity has it, such as ``"idle in transaction"``; or ``"prepared"``."""


def oldest_snapshot() -> Script[Snapshot]:
    """Look for it. Of other roles' sessions a role sees only those that pg_read_all_stats shows it."""

    def steps(_reading: Reading) -> Steps[Snapshot]:
        answer = yield Statement("snapshots", _TEXT)
        if not answer.rows:
            return Snapshot(0.0)
        pid, user, application, state, age = answer.rows[0]
        return Snapshot(max(age, 0.0), pid, user, application, state)

    return Script("snapshots", steps, "none")
