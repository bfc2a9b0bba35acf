"""The demo ends well, and ends badly where what it shows is broken."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from inboxkit._cli.demo import run_demo
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._forms.lease import LeaseForm
from inboxkit._runtime.renewing import Renewer
from inboxkit._sql.sqlite import lease as sqlite_lease
from inboxkit.abc import Fence, Settled


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
    def never(self: Renewer) -> None:
        """Nothing is due, ever."""

    monkeypatch.setattr(Renewer, "next_round", never)
    status, text = run_and_read()
    assert status == 1
    assert "the lease was renewed each half minute" in failed_lines(text)


def test_a_missing_due_check_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sqlite_lease.claim_select
    planted: list[str] = []

    def without_due_check(*args: Any, **kwargs: Any) -> str:
        text, count = re.subn(
            r"`retry_after` <= \$1", "`retry_after` IS NOT NULL", right(*args, **kwargs)
        )
        planted.extend([text] * count)
        return text

    monkeypatch.setattr(sqlite_lease, "claim_select", without_due_check)
    status, text = run_and_read()
    assert planted
    assert status == 1
    assert "each reminder was sent three days after its order, no sooner" in failed_lines(text)


def test_a_lost_dead_letter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LeaseForm.settle

    async def losing(
        form: LeaseForm, settlements: Sequence[tuple[Fence, Settlement]]
    ) -> list[Settled]:
        finish = Settlement(Verb.FINISH)
        changed = [(f, finish if s.verb is Verb.MOVE else s) for f, s in settlements]
        return await right(form, changed)

    monkeypatch.setattr(LeaseForm, "settle", losing)
    status, text = run_and_read()
    assert status == 1
    failed = failed_lines(text)
    assert "went to the dead letter and was reviewed" in failed
    assert "the refused change is parked" in failed
