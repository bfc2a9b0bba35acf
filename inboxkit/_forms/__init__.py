"""Claim forms: what holds a row in work, as the runtime's six verbs over SQL."""

from __future__ import annotations

from datetime import timedelta

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.spec import InboxSpec
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.every_group import Others
from inboxkit._sql.info import TableInfo
from inboxkit.abc import ClaimForm
from inboxkit.errors import DialectError

from .every_group import EveryGroupForm
from .lease import LeaseForm
from .runner import Runner

__all__ = ["EveryGroupForm", "LeaseForm", "Runner", "open_form"]


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
    others: Others | None = None,
) -> ClaimForm:
    """Make the claim form that a description asks for.

    Args:
        runner: Runs its scripts.
        spec: The table.
        info: What the database says of it, checked.
        dialect: The database's.
        group: The queue's group; None where the table has no groups, or all are served.
        lease: How long a claim holds, in whole seconds.
        cap: Most attempts; None: no cap.
        steps: The instance's, for expiries that do not repeat.
        others: Every group of the table is served but these; None: `group` says which.

    Raises:
        DialectError: This database, or this version, does not serve the form.
    """
    if spec.form == "row lock" and dialect.name == "sqlite":
        raise DialectError(
            f"table {spec.name!r} asks for the row lock form, and SQLite locks no rows; describe a "
            "locked_until column (a nullable TEXT), which asks for the lease form"
        )
    if spec.form != "lease" and others is not None:
        raise DialectError(
            f"table {spec.name!r} asks for the {spec.form} form, and this version of inboxkit serves "
            "every group of a table in the lease form; describe a locked_until column (a nullable "
            "time), or include a subscription for each group"
        )
    if spec.form != "lease":
        raise DialectError(
            f"table {spec.name!r} asks for the {spec.form} form, and this version of inboxkit serves "
            "the lease form; describe a locked_until column (a nullable time)"
        )
    if others is not None:
        return EveryGroupForm(
            runner, spec, info, dialect, others=others, lease=lease, cap=cap, steps=steps
        )
    if spec.group is not None and group is None:
        raise DialectError(f"table {spec.name!r} has groups; name the one to serve, or serve all")
    return LeaseForm(runner, spec, info, dialect, group=group, lease=lease, cap=cap, steps=steps)
