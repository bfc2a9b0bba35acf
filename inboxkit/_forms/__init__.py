"""Claim forms: what holds a row in work, as the runtime's six verbs over SQL."""

from __future__ import annotations

from datetime import timedelta

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.spec import InboxSpec
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.info import TableInfo
from inboxkit.abc import ClaimForm
from inboxkit.errors import DialectError

from .lease import LeaseForm
from .row_lock import RowLockForm
from .runner import Connections, Runner

__all__ = ["Connections", "LeaseForm", "RowLockForm", "Runner", "open_form"]


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
) -> ClaimForm:
    """Make the claim form that a description asks for.

    Args:
        database: Runs its scripts, and lends it sessions.
        spec: The table.
        info: What the database says of it, checked.
        dialect: The database's.
        group: The queue's group; None where the table has no groups.
        lease: How long a claim holds, in whole seconds; of use to the lease form alone.
        cap: Most attempts; None: no cap.
        steps: The instance's, for expiries that do not repeat.

    Raises:
        DialectError: This database, or this version, does not serve the form.
    """
    if spec.form == "advisory lock":
        raise DialectError(
            f"table {spec.name!r} asks for the {spec.form} form, and this version of inboxkit serves "
            "the lease form; describe a locked_until column (a nullable time)"
        )
    if spec.group is not None and group is None:
        raise DialectError(
            f"table {spec.name!r} has groups, and this version of inboxkit serves one group a "
            "subscription; name the group"
        )
    if spec.form == "row lock":
        return RowLockForm(database, spec, info, dialect, group=group)
    return LeaseForm(database, spec, info, dialect, group=group, lease=lease, cap=cap, steps=steps)
