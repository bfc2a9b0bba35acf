"""The machine on every database and both loops, in every claim form; and databases made as good as new."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from testing_kit.resuming_services import LOCKED, ORDERS, Order, Shop, SoundAdvisory, SoundLocked

from inboxkit import Database, DeclarationError
from inboxkit_testing import VirtualClock, check_crash_and_resume, traffic
from inboxkit_testing.stateful.emptying import empty
from inboxkit_testing.stateful.test_case import run_machine

FEW = settings(max_examples=4, derandomize=True, database=None, phases=[Phase.generate])


@pytest.mark.parametrize("form", [Shop, SoundAdvisory, SoundLocked])
@pytest.mark.parametrize("inbox_db", ["sqlite", "sqlite-inloop", "postgres", "mariadb", "mysql"])
def test_a_sound_service_passes_in_every_form(
    inbox_database: Database, inbox_backend: Any, form: type[Shop], inbox_db: str
) -> None:
    if form is SoundLocked and inbox_db.startswith("sqlite"):
        pytest.skip("SQLite has no row locks")

    class Here(form):  # type: ignore[valid-type, misc]
        database = _url(inbox_database)
        backend = inbox_backend

    run_machine(Here, FEW)


def _url(database: Any) -> str:
    if hasattr(database, "url"):
        found: str = database.url
        return found
    shown: str = database._url.location
    return shown if "://" in shown else f"sqlite+thread:///{shown}"
