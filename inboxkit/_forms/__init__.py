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
from .runner import Runner

__all__ = ["LeaseForm", "Runner", "open_form"]


def open_form(
    runner: Runner,
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
        runner: Runs its scripts.
        spec: The table.
        info: What the database says of it, checked.
        dialect: The database's.
        group: The queue's group; None where the table has no groups.
        lease: How long a claim holds, in whole seconds.
        cap: Most attempts; None: no cap.
        steps: The instance's, for expiries that do not repeat.

    Raises:
        DialectError: This database, or this version, does not serve the form.
    """
    if spec.form == "row lock" and dialect.name == "sqlite":
        raise DialectError(
            f"table {spec.name!r} asks for the row lock form, and SQLite locks no rows; describe a "
            "locked_until column (a nullable TEXT), which asks for the lease form"
        )
    if spec.form != "lease":
        raise DialectError(
            f"table {spec.name!r} asks for the {spec.form} form, and this version of inboxkit serves "
            "the lease form; describe a locked_until column (a nullable time)"
        )
    if spec.group is not None and group is None:
        raise DialectError(
            f"table {spec.name!r} has groups, and this version of inboxkit serves one group a "
            "subscription; name the group"
        )
    return LeaseForm(runner, spec, info, dialect, group=group, lease=lease, cap=cap, steps=steps)
