"""Finished mails go after thirty days; a mail that is still to be sent never does."""

from __future__ import annotations

from datetime import timedelta

import retention
from retention import MONTH, service
from shop import EMAILS, Email, SendEmail

from inboxkit import Database
from inboxkit_testing import TestApp, VirtualClock

DAY = timedelta(days=1)
MAIL = Email("ann@example.com", "hello")


async def test_finished_mails_stay_for_thirty_days(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    async with TestApp(service(inbox_database, DAY)) as app:
        await app.publish(EMAILS, MAIL)
        waiting = await app.publish(EMAILS, MAIL, retry_after=start + 90 * DAY)
    await virtual_clock.advance(29 * DAY)
    async with TestApp(service(inbox_database, DAY)) as app:
        assert len(await app.rows(SendEmail)) == 2
        await app.advance(DAY + timedelta(hours=1))
        (row,) = await app.rows(SendEmail)
        assert (row.id, row.processed_at) == (waiting, None)


async def test_a_cron_job_deletes_the_same_rows(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database, DAY)) as app:
        await app.publish(EMAILS, MAIL)
        await app.publish(EMAILS, MAIL, retry_after=virtual_clock.now() + 90 * DAY)
    await virtual_clock.advance(MONTH)
    assert await retention.delete_finished(inbox_database, SendEmail, older_than=MONTH) == 1
    assert await inbox_database.fetch_value("SELECT count(*) FROM email_jobs") == 1
