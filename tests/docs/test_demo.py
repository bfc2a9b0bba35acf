"""The demo ends well, and ends badly where what it shows is broken."""

from __future__ import annotations

import io

import anyio
import pytest
from rich.console import Console

from inboxkit._cli.demo import run_demo
from inboxkit._core.settlement import Verb
from inboxkit._runtime.renewing import Renewer
from inboxkit._sql.sqlite import lease as sqlite_lease


def run_and_read() -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    status = run_demo(console)
    assert isinstance(console.file, io.StringIO)
    return status, console.file.getvalue()


def failed_lines(text: str) -> str:
    _, found, failed = text.partition("checks failed:")
    assert found, text[-2000:]
    return failed


def test_the_demo_ends_well() -> None:
    status, text = run_and_read()
    assert status == 0, text[-2000:]
    assert "✗" not in text
    assert "CRASH: the process dies" in text
    assert "3 days, 0:11:00 of virtual time" in text
    assert text.rstrip().endswith("All 17 checks hold.")


def test_a_broken_renewal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Renewer) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Renewer, "renew", never)
    status, text = run_and_read()
    assert status == 1
    assert "the lease was renewed each half minute" in failed_lines(text)


def test_a_missing_due_check_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sqlite_lease._claim_select

    def without_due_check(*args: object, **kwargs: object) -> str:
        text = right(*args, **kwargs)  # type: ignore[arg-type]
        assert "`retry_after` <= $1" in text or "retry_after" not in text
        return text.replace("`retry_after` <= $1", "`retry_after` <> $1")

    monkeypatch.setattr(sqlite_lease, "_claim_select", without_due_check)
    status, text = run_and_read()
    assert status == 1
    assert "each reminder was sent three days after its order, no sooner" in failed_lines(text)


def test_a_lost_dead_letter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sqlite_lease.SqliteLease._statement

    def losing(self: sqlite_lease.SqliteLease, write, rows, now):  # type: ignore[no-untyped-def]
        if write.verb is Verb.MOVE:
            return self._delete(rows)
        return right(self, write, rows, now)

    monkeypatch.setattr(sqlite_lease.SqliteLease, "_statement", losing)
    status, text = run_and_read()
    assert status == 1
    failed = failed_lines(text)
    assert "went to the dead letter and was reviewed" in failed
    assert "the refused change is parked" in failed
