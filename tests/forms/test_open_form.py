"""Which claim form a description gets, and where it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit.abc import ClaimForm
from inboxkit.errors import DialectError


def attempt_to_open(dialect: str, **roles: Any) -> ClaimForm:
    return open_form(
        None,  # type: ignore[arg-type]
        InboxSpec("jobs", id=Column("id"), **roles),
        TableInfo("jobs"),
        get_dialect(dialect),
        group=None,
        lease=timedelta(seconds=30),
        cap=None,
        steps=ExpirySteps(0),
    )


def test_row_lock_form_is_refused_on_sqlite_by_name() -> None:
    with pytest.raises(DialectError, match=r"row lock.*SQLite"):
        attempt_to_open("sqlite")


def test_without_a_lease_sessions_hold_the_rows() -> None:
    assert attempt_to_open("postgres").lease is None
    assert attempt_to_open("postgres", advisory_lock="jobs-{id}").lease is None
    lease = attempt_to_open("postgres", locked_until=Column("lease")).lease
    assert lease == timedelta(seconds=30)


@pytest.mark.parametrize(
    "roles",
    [{"locked_until": Column("lease")}, {"advisory_lock": "{id}"}],
    ids=["lease", "advisory"],
)
def test_all_groups_at_once_are_refused(roles: dict[str, Any]) -> None:
    with pytest.raises(DialectError, match="groups"):
        attempt_to_open("postgres", group=Column("grp"), **roles)


def test_unknown_dialect_is_refused() -> None:
    with pytest.raises(DialectError, match="oracle"):
        get_dialect("oracle")
