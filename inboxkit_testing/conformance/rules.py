"""Where the claim forms differ, for a row whose attempt is stored as 1 before its first delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inboxkit.abc import ClaimFormName

__all__ = ["RULES", "Rules"]


@dataclass(frozen=True)
class Rules:
    """What tests expect of a form."""

    in_work: int
    """The attempt stored during the first delivery;"""
    after_retry: int
    """after it was given back, now or later, or released counted;"""
    after_give_back: int
    """after it was released with its count taken back;"""
    after_crash: int
    """after its holder crashed;"""
    moved: int
    """and after it was moved to the dead letter."""
    rows_a_claim: int | None
    """Most rows of one claim; None: as many as asked for."""
    back_after_crash: int
    """Seconds until the row of a crashed holder is claimable again."""
    back_after_hold: int
    """Seconds until a row is claimable that was held back for seven."""
    has_fifo: bool = True
    has_keys: bool = False


RULES: Final[dict[ClaimFormName, Rules]] = {
    "row lock": Rules(
        in_work=1,
        after_retry=2,
        after_give_back=1,
        after_crash=1,
        moved=1,
        rows_a_claim=1,
        back_after_crash=0,
        back_after_hold=0,
    ),
    "lease": Rules(
        in_work=2,
        after_retry=2,
        after_give_back=1,
        after_crash=2,
        moved=2,
        rows_a_claim=None,
        back_after_crash=30,
        back_after_hold=7,
    ),
    "advisory lock": Rules(
        in_work=2,
        after_retry=2,
        after_give_back=1,
        after_crash=2,
        moved=2,
        rows_a_claim=1,
        back_after_crash=0,
        back_after_hold=0,
        has_fifo=False,
        has_keys=True,
    ),
}
