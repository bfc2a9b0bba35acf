"""The rules of a queue in memory: tables, and the three claim forms behind the port `ClaimForm`.

What any claim form on any database is compared with. There is no SQL here, and nothing waits: a verb
happens at once and whole, at one reading of the clock.

`table` has the rows and what holds them, `form` what the three forms have in common: which rows go
out, in which order, and what settlements write. `lease` and `held` say how each form puts a row in
work, and what a delivery must still hold to write it.
"""

from __future__ import annotations

from datetime import timedelta

from inboxkit._core.spec import InboxSpec
from inboxkit.errors import DialectError

from .form import ModelForm
from .held import ModelAdvisory, ModelRowLock
from .lease import ModelLease
from .table import ModelDatabase, ModelRow, ModelTable

__all__ = ["ModelDatabase", "ModelForm", "ModelRow", "ModelTable", "open_model"]


def open_model(
    database: ModelDatabase,
    spec: InboxSpec,
    *,
    group: str | None,
    lease: timedelta = timedelta(seconds=30),
    cap: int | None = None,
    step: int = 0,
) -> ModelForm:
    """Make the claim form that a description asks for, as one instance of a service.

    Args:
        database: Where the table was made.
        spec: The table's.
        group: The queue's group; None where the table has no groups.
        lease: How long a claim holds.
        cap: Most attempts; None: no cap.
        step: Where the instance's microseconds of expiries start, 0 to 999; no two instances alike.

    Raises:
        DialectError: The table has groups, and none is named.
    """
    if spec.group is not None and group is None:
        raise DialectError(f"table {spec.name!r} has groups; name the one to be served")
    table = database.table(spec.name)
    if spec.form == "lease":
        return ModelLease(database, table, group=group, cap=cap, lease=lease, step=step)
    kind = ModelRowLock if spec.form == "row lock" else ModelAdvisory
    return kind(database, table, group=group, cap=cap)
