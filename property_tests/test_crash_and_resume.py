"""The examples, crashed and resumed by the machine that users run: every message has its effect, once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic
from inboxkit_testing.stateful.running import run_machine

# The examples import each other's helpers by plain names, as scripts do.
sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "examples"))

import accounts
import mailer
import reports
import shop


class Reports(CrashAndResume):
    traffic = (
        traffic(
            reports.REPORTS,
            lambda n: st.builds(reports.Report, st.just(n), st.sampled_from([1, 300])),
        ),
    )

    def service(self, database: Database) -> Service:
        return reports.service(database, reports.timedelta(seconds=15))

    async def check(self, world: World) -> None:
        assert await world.rows(reports.RenderReport) == []


class Accounts(CrashAndResume):
    traffic = (
        traffic(
            accounts.CRM,
            lambda n: st.builds(accounts.Contact, st.just(n), st.sampled_from(["a@b", ""])),
        ),
        traffic(
            accounts.POSTINGS,
            st.builds(accounts.Posting, st.sampled_from(["alice", "bob"]), st.integers(1, 9)),
            account=lambda posting: posting.account,
        ),
    )

    def service(self, database: Database) -> Service:
        return accounts.service(database, accounts.timedelta(seconds=10))

    async def check(self, world: World) -> None:
        left = {row.target for row in await world.rows(accounts.CrmChange)}
        assert left <= {"crm.parked"}


class Shop(CrashAndResume):
    traffic = (traffic(shop.CHECKOUTS, lambda n: shop.Order(n, f"{n}@example.com")),)

    def service(self, database: Database) -> Service:
        return shop.service(database, shop.timedelta(seconds=10))

    async def check(self, world: World) -> None:
        orders = {row[0] for row in await world.database.fetch("SELECT id FROM orders")}
        assert {sent.message.id for sent in world.published if sent.is_known} <= orders
        mails = await world.rows(shop.SendEmail)
        assert len(mails) == 2 * len(orders)
        assert all(mail.processed_at is not None for mail in mails)


class Mailer(CrashAndResume):
    traffic = (
        traffic(
            mailer.EMAILS,
            st.sampled_from(["customer", "rejected", "unavailable"]).map(
                lambda kind: mailer.Mail(f"{kind}@example.com", "news")
            ),
        ),
    )

    def service(self, database: Database) -> Service:
        return mailer.service(database, mailer.timedelta(seconds=10))

    async def check(self, world: World) -> None:
        assert await world.rows(mailer.SendMail) == []


_PLACES: list[tuple[str, Any]] = [
    ("sqlite-inloop", "asyncio"),
    ("sqlite-inloop", "trio"),
    ("postgres", "asyncio"),
    ("mariadb", "trio"),
]


@pytest.mark.parametrize("kind", [Reports, Accounts, Shop, Mailer])
@pytest.mark.parametrize(("place", "loop"), _PLACES)
def test_the_examples_resume(kind: type[CrashAndResume], place: str, loop: Any) -> None:
    class Here(kind):  # type: ignore[valid-type, misc]
        traffic = kind.traffic
        database = place
        backend = loop

    share = 10 if place.startswith("sqlite") else 40
    run_machine(Here, settings(max_examples=max(settings().max_examples // share, 2)))
