"""Order by FIFO group and by partition key: the guide's cases and what it says."""

from __future__ import annotations

import itertools
from collections import defaultdict
from datetime import timedelta

import accounts
import anyio
import pytest
from accounts import CRM, POSTINGS, Contact, CrmChange, LedgerPosting, Posting, post, service, sync

from inboxkit import Database
from inboxkit_testing import TestApp, VirtualClock

SECOND = timedelta(seconds=1)
REFUSED = Contact(1, "")
ACCEPTED = Contact(2, "second@example.com")


async def test_nothing_of_the_second_goes_out_before_the_third_refusal_of_the_first(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await app.broker.publish(CRM, REFUSED)
        await app.broker.publish(CRM, ACCEPTED)
        await app.settle()
        app.subscriber(sync).assert_called_with(REFUSED, REFUSED, REFUSED, ACCEPTED)
        assert [run.attempt for run in app.subscriber(sync).runs] == [1, 2, 3, 1]
        (parked,) = await app.dead(CrmChange)
        assert (parked.target, parked.attempt, parked.locked_until) == ("crm.parked", 4, None)
        assert await app.pending(CrmChange) == []


async def test_a_head_that_another_instance_holds_stops_those_behind_it(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await accounts.create_schema(inbox_database)
    head, behind = Contact(1, "head@example.com"), Contact(2, "behind@example.com")
    end = inbox_database.clock.now() + timedelta(minutes=2)
    insert = (
        "INSERT INTO crm_jobs (target, attempt, locked_until, payload) VALUES ('crm', $1, $2, $3)"
    )
    await inbox_database.execute(insert, 2, end, CrmChange.of(head, target="crm").payload)
    await inbox_database.execute(insert, 1, None, CrmChange.of(behind, target="crm").payload)
    async with TestApp(service(inbox_database)) as app:
        await app.advance(timedelta(minutes=1, seconds=59))
        app.subscriber(sync).assert_not_called()
        await app.advance(2 * SECOND)
        app.subscriber(sync).assert_called_with(head, behind)


async def test_a_row_that_enters_ahead_of_the_one_in_work_waits_for_it(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_work: list[int] = []
    most: list[int] = []

    async def send(contact: Contact) -> bool:
        in_work.append(contact.id)
        most.append(len(in_work))
        await anyio.sleep(10)
        in_work.remove(contact.id)
        return True

    monkeypatch.setattr(accounts, "send_to_crm", send)
    first, behind, ahead = (Contact(number, "x@example.com") for number in (1, 2, 3))
    async with TestApp(service(inbox_database)) as app:
        await app.publish(CRM, first)
        await app.publish(CRM, behind)
        overriding = "OVERRIDING SYSTEM VALUE " if inbox_database.dialect == "postgres" else ""
        await inbox_database.execute(
            f"INSERT INTO crm_jobs (id, target, payload) {overriding}VALUES (-1, 'crm', $1)",
            CrmChange.of(ahead, target="crm").payload,
        )
        await app.advance(35 * SECOND)
        app.subscriber(sync).assert_called_with(first, ahead, behind)
    assert max(most) == 1


async def test_a_failing_head_keeps_its_place_while_it_backs_off(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = itertools.count()

    async def send(contact: Contact) -> bool:
        if contact.id == 1 and next(failures) < 2:
            raise ConnectionError("the CRM is down")
        return True

    monkeypatch.setattr(accounts, "send_to_crm", send)
    contacts = [Contact(number, "x@example.com") for number in (1, 2, 3)]
    async with TestApp(service(inbox_database)) as app:
        for contact in contacts:
            await app.broker.publish(CRM, contact)
        await app.advance(10 * SECOND)
        first, second, third = contacts
        app.subscriber(sync).assert_called_with(first, first, first, second, third)


async def test_postings_of_an_account_are_posted_in_order(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: defaultdict[str, list[int]] = defaultdict(list)
    at_once: set[str] = set()
    most = 0

    async def post_to_ledger(posting: Posting) -> None:
        nonlocal most
        assert posting.account not in at_once
        at_once.add(posting.account)
        most = max(most, len(at_once))
        await anyio.sleep(1 + posting.cents % 3)
        at_once.remove(posting.account)
        posted[posting.account].append(posting.cents)

    monkeypatch.setattr(accounts, "post_to_ledger", post_to_ledger)
    await accounts.create_schema(inbox_database)
    for number in range(20):  # by the service's own SQL
        account = ("alice", "bob")[number % 2]
        row = LedgerPosting.of(Posting(account, number), account=account)
        await inbox_database.execute(
            "INSERT INTO ledger_jobs (account, payload) VALUES ($1, $2)", account, row.payload
        )
    async with TestApp(service(inbox_database)) as app:
        await app.advance(timedelta(minutes=2))
        assert await app.rows(LedgerPosting) == []
    assert posted == {"alice": list(range(0, 20, 2)), "bob": list(range(1, 20, 2))}


async def test_two_accounts_are_posted_side_by_side(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: set[str] = set()
    most: list[int] = []

    async def post_to_ledger(posting: Posting) -> None:
        at_once.add(posting.account)
        most.append(len(at_once))
        await anyio.sleep(1)
        at_once.remove(posting.account)

    monkeypatch.setattr(accounts, "post_to_ledger", post_to_ledger)
    async with TestApp(service(inbox_database)) as app:
        for number in range(12):
            account = f"account-{number}"
            await app.broker.publish(POSTINGS, Posting(account, 1), account=account)
        await app.advance(timedelta(minutes=1))
        assert len(app.subscriber(post).calls) == 12
    assert 1 < max(most) <= 4
