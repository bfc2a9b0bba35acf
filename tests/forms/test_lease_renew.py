"""The lease form's renewal, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from inboxkit._sql.statement import Reading, Script
from inboxkit.abc import Fence
from inboxkit.errors import OutcomeUnknownError, PoolTimeoutError


def test_renewal_prolongs_and_answers_the_new_tokens(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        first, second = await b.insert({}, {})
        form = b.form()
        claim = await form.claim(limit=2)
        b.advance(seconds=15)
        renewal = await form.renew([(row.fence, row.reading) for row in claim.rows], timeout=5)
        assert renewal.reading is not None
        assert renewal.reading.now == b.now
        assert set(renewal.renewed) == {first, second}
        assert len(set(renewal.renewed.values())) == 2
        for token in renewal.renewed.values():
            assert timedelta(seconds=30) <= token - b.now < timedelta(seconds=30.001)
        stored = await b.rows("lease")
        assert stored == [renewal.renewed[id] for id in (first, second)]

    bench(test)


def test_clock_set_back_does_not_shorten_a_lease(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        await b.insert({})
        form = b.form()
        (row,) = (await form.claim(limit=1)).rows
        made = replace(row.reading, monotonic=row.reading.monotonic - 15)  # 15 s have passed since
        renewal = await form.renew([(row.fence, made)], timeout=5)
        (token,) = renewal.renewed.values()
        assert token >= row.fence.tokens[0] + timedelta(seconds=15)

    bench(test)


def test_any_token_of_the_set_counts_as_held(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (id,) = await b.insert({})
        form = b.form()
        (row,) = (await form.claim(limit=1)).rows
        other = b.now + timedelta(days=1)
        fence = replace(row.fence, tokens=(other, *row.fence.tokens))
        renewal = await form.renew([(fence, row.reading)], timeout=5)
        assert set(renewal.renewed) == {id}

    bench(test)


def test_another_token_another_attempt_or_no_row_is_lost(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        stolen, recounted, gone, kept = await b.insert({}, {}, {}, {})
        form = b.form()
        rows = (await form.claim(limit=4)).rows
        await b.set(stolen, lease=b.now + timedelta(days=1))
        await b.set(recounted, tries=7)
        await b.db.execute(f"DELETE FROM {b.name} WHERE id = $1", gone)
        renewal = await form.renew([(row.fence, row.reading) for row in rows], timeout=5)
        assert renewal.lost == {stolen, recounted, gone}
        assert set(renewal.renewed) == {kept}
        assert (await b.rows("tries"))[1] == 7

    bench(test)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_row_that_somebody_has_locked_is_skipped_without_waiting(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        locked, free, gone = await b.insert({}, {}, {})
        form = b.form()
        rows = (await form.claim(limit=3)).rows
        await b.set(gone, lease=None)
        async with b.db.transaction() as other:
            await other.execute(f"SELECT id FROM {b.name} WHERE id = $1 FOR UPDATE", locked)
            with anyio.fail_after(5):
                renewal = await form.renew([(row.fence, row.reading) for row in rows], timeout=5)
        assert renewal.skipped == {locked}
        assert renewal.lost == {gone}
        assert set(renewal.renewed) == {free}

    bench(test)


class Lossy:
    """A runner that fails at a point of each script."""

    def __init__(self, error: Exception | None, *, sends: bool) -> None:
        self.error = error
        self.sends = sends
        self.scripts: list[str] = []

    async def run(self, script: Script[Any]) -> Any:
        self.scripts.append(script.name)
        if self.sends:
            steps = script.steps(Reading(datetime(2030, 1, 1, tzinfo=UTC), 0.0))
            next(steps)
            steps.close()
        if self.error is None:
            await anyio.sleep_forever()
        assert self.error is not None
        raise self.error


def _fence(b: Any) -> tuple[Fence, Reading]:
    return Fence(1, (b.START,), 2), Reading(b.START, 0.0)


def test_renewal_whose_answer_is_lost_says_which_tokens_may_stand(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        error = OutcomeUnknownError("gone", statement="renew")
        renewal = await b.form(runner=Lossy(error, sends=True)).renew([_fence(b)], timeout=5)
        assert renewal.error is error
        assert set(renewal.unknown) == {1}
        assert renewal.unknown[1] > b.START
        assert [renewal.renewed, *map(set, (renewal.lost, renewal.failed, renewal.skipped))] == [
            {},
            set(),
            set(),
            set(),
        ]

    bench(test)


def test_renewal_that_times_out_is_unknown_once_sent(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        sent = await b.form(runner=Lossy(None, sends=True)).renew([_fence(b)], timeout=0.01)
        assert set(sent.unknown) == {1}
        assert isinstance(sent.error, TimeoutError)
        unsent = await b.form(runner=Lossy(None, sends=False)).renew([_fence(b)], timeout=0.01)
        assert unsent.failed == {1}
        assert unsent.reading is None

    bench(test)


def test_renewal_without_a_connection_has_failed(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        error = PoolTimeoutError("none free", statement="renew")
        renewal = await b.form(runner=Lossy(error, sends=False)).renew([_fence(b)], timeout=5)
        assert renewal.failed == {1}
        assert renewal.error is error

    bench(test)


def test_no_holds_send_nothing(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        renewal = await b.form().renew([], timeout=5)
        assert renewal.reading is None
        assert b.runs == []

    bench(test)
