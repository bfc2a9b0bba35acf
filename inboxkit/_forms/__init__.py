"""Claim forms: what holds a row in work, as the runtime's six verbs over SQL."""

from __future__ import annotations

from datetime import timedelta

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.spec import InboxSpec
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.every_group import Others
from inboxkit._sql.info import TableInfo
from inboxkit._sql.table import Table, bind
from inboxkit.abc import ClaimForm
from inboxkit.errors import DialectError

from .advisory import SessionAdvisoryForm
from .advisory_in_process import Keys, ProcessAdvisoryForm
from .every_group import EveryGroupForm
from .every_group_row_lock import EveryGroupRowLockForm
from .lease import LeaseForm
from .row_lock import RowLockForm
from .runner import Connections, Runner

__all__ = [
    "Connections",
    "EveryGroupForm",
    "EveryGroupRowLockForm",
    "Keys",
    "LeaseForm",
    "RowLockForm",
    "Runner",
    "open_form",
]


def open_form(
    database: Connections,
    spec: InboxSpec,
    info: TableInfo,
    dialect: Dialect,
    *,
    group: str | None,
    lease: timedelta,
    cap: int | None,
    steps: ExpirySteps,
    others: Others | None = None,
    keys: Keys | None = None,
    queue: str = "",
) -> ClaimForm:
    """Make the claim form that a description asks for.

    Args:
        database: Runs its scripts, and lends it sessions.
        spec: The table.
        info: What the database says of it, checked.
        dialect: The database's.
        group: The queue's group; None where the table has no groups, or all are served.
        lease: How long a claim holds, in whole seconds; of use to the lease form alone.
        cap: Most attempts; None: no cap.
        steps: The instance's, for expiries that do not repeat.
        others: Every group of the table is served but these; None: `group` says which.
        keys: The keys of the database where this process keeps them: the advisory lock form's, on
            SQLite. The form closes them.
        queue: The queue's name, for the log.

    Raises:
        DialectError: This database, or this version, does not serve the form.
    """
    if spec.form == "advisory lock" and others is not None:
        raise DialectError(
            f"table {spec.name!r} asks for the {spec.form} form, and this version of inboxkit serves "
            "every group of a table in the lease and row lock forms; describe a locked_until column (a "
            "nullable time), or include a subscription for each group"
        )
    if spec.form == "row lock" and others is not None:
        return EveryGroupRowLockForm(
            database, spec, info, dialect, others=others, cap=cap, queue=queue
        )
    if others is not None:
        return EveryGroupForm(
            database,
            spec,
            info,
            dialect,
            others=others,
            lease=lease,
            cap=cap,
            steps=steps,
            queue=queue,
        )
    if spec.group is not None and group is None:
        raise DialectError(f"table {spec.name!r} has groups; name the one to serve, or serve all")
    if spec.form == "advisory lock":
        return _open_advisory(
            database, bind(dialect, spec, info), group=group, cap=cap, keys=keys, queue=queue
        )
    if spec.form == "row lock":
        return RowLockForm(database, spec, info, dialect, group=group, cap=cap, queue=queue)
    return LeaseForm(
        database,
        spec,
        info,
        dialect,
        group=group,
        lease=lease,
        cap=cap,
        steps=steps,
        queue=queue,
    )


def _open_advisory(
    database: Connections,
    table: Table,
    *,
    group: str | None,
    cap: int | None,
    keys: Keys | None,
    queue: str,
) -> ClaimForm:
    statements = table.dialect.advisory(table, group=group, cap=cap)
    if statements.kept_by == "session":
        return SessionAdvisoryForm(database, table, statements, cap=cap, queue=queue)
    assert keys is not None, "SQLite keeps no keys: the process does"
    return ProcessAdvisoryForm(database, table, statements, keys, cap=cap, queue=queue)
