"""A bench: one table, and a clock that the test moves; the same methods wherever it stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from inboxkit import Column, InboxSpec
from inboxkit.abc import (
    Claim,
    Claimed,
    ClaimForm,
    ClaimFormName,
    Destination,
    Fence,
    Renewal,
    Settled,
    Settlement,
    Verb,
)

from .manual_clock import START, ManualClock
from .rules import RULES, Rules

__all__ = [
    "FINISH",
    "GIVE_BACK",
    "LEASE",
    "SECOND",
    "START",
    "TO_DEAD",
    "Bench",
    "hold",
    "ids",
    "postpone",
]

SECOND: Final = timedelta(seconds=1)
LEASE: Final = timedelta(seconds=30)
"""How long a claim of the lease form holds, in all tests."""

FINISH: Final = Settlement(Verb.FINISH)
GIVE_BACK: Final = Settlement(Verb.GIVE_BACK)
TO_DEAD: Final = Settlement(Verb.MOVE, destination=Destination(group="dead"))


def postpone(seconds: float) -> Settlement:
    """Due again after so long."""
    return Settlement(Verb.POSTPONE, timedelta(seconds=seconds))


def hold(seconds: float) -> Settlement:
    """Held back for so long, in its place."""
    return Settlement(Verb.HOLD, timedelta(seconds=seconds))


def ids(claimed: Sequence[Claimed] | Claim) -> list[Any]:
    """Their ids, in order."""
    rows = claimed.rows if isinstance(claimed, Claim) else claimed
    return [row.fence.id for row in rows]


ROLES: dict[str, Any] = {
    "id": Column("id", generated=True, type=int),
    "group": Column("grp"),
    "priority": Column("prio"),
    "retry_after": Column("due", default=None),
    "attempt": Column("tries"),
    "payload": Column("body", type=bytes),
}
DEFAULTS: dict[str, Any] = {"grp": "a", "prio": 0, "due": None, "body": b"{}", "tries": 1}


class Bench(ABC):
    """One table in one claim form; entered by ``async with`` in the test's loop.

    What is abstract says how the table is reached; the rest is what tests do with it.

    Args:
        form_name: Of which kind the form is: ``"lease"``, ``"row lock"`` or ``"advisory lock"``.
        table: The table's name; None: one that no other bench has.
        clock: The form's; None: a new one.
        rules: What tests expect of the form; None: as of ours of that kind.
    """

    START = START
    spec: InboxSpec
    """What `create` was asked for; set by it."""

    def __init__(
        self,
        form_name: ClaimFormName,
        table: str | None = None,
        *,
        clock: ManualClock | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.form_name = form_name
        self.table: str = table or f"jobs {uuid4().hex[:12]}"
        self.clock: ManualClock = clock or ManualClock()
        self.rules: Rules = rules or RULES[form_name]
        self._forms: dict[Any, ClaimForm] = {}
        self._holders: dict[int, tuple[Fence, ClaimForm]] = {}
        """By the fence's identity: two forms may number their sessions alike."""
        self._in_work: dict[int, Claimed] = {}
        """Likewise, what was not settled, released or crashed."""

    def __str__(self) -> str:
        return f"{self.form_name} form on {type(self).__name__}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close_forms()

    @property
    def now(self) -> datetime:
        """The form's time."""
        return self.clock.now()

    def advance(self, **delta: float) -> None:
        """Let time pass, by arguments of `timedelta`."""
        self.clock.elapsed += timedelta(**delta)

    # The table.

    def describe(self, **roles: Any) -> InboxSpec:
        """The usual description, in the form of this bench, with some roles otherwise or (None) not."""
        given: dict[str, Any] = {**ROLES}
        if self.form_name == "lease":
            given["locked_until"] = Column("lease")
        elif self.form_name == "advisory lock":
            given["advisory_lock"] = self.table + "-{id}"
        return InboxSpec(self.table, **{**given, **roles})

    @abstractmethod
    async def create(self, *, nullable: bool = False, dead: str = "", **roles: Any) -> None:
        """Make the table that a description asks for.

        Args:
            nullable: All columns but the id take NULL.
            dead: Make another of this name, without rows.
            roles: As for `describe`.
        """

    def filled(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with what it leaves out filled in; a due time of None is now."""
        described = {column.name for _role, column in self.spec.roles()}
        given = {name: value for name, value in DEFAULTS.items() if name in described} | row
        if given.get("due", 0) is None:
            given["due"] = self.now
        return given

    @abstractmethod
    async def insert(self, *rows: dict[str, Any]) -> list[Any]:
        """Insert rows, each `filled`; returns their ids in order."""

    @abstractmethod
    async def rows(self, *columns: str, table: str | None = None) -> list[Any]:
        """The rows by id, as Python values.

        Args:
            columns: Their names. One: its values; several: tuples of them. A column that this table
                has not is None.
            table: Another one that `create` made; None: this.
        """

    @abstractmethod
    async def set(self, id: Any, **values: Any) -> None:
        """Write a row as somebody else would."""

    @abstractmethod
    async def spoil(self, id: Any, column: str) -> None:
        """Put JSON into a row's column that is not what the description says."""

    # The form.

    @abstractmethod
    def open(self, group: str | None, cap: int | None, step: int = 0) -> ClaimForm:
        """A claim form, as one instance of a service has it.

        Args:
            group: The queue's; None where the table has no groups.
            cap: Most attempts; None: no cap.
            step: Where the instance begins with what makes its expiries unlike others'; of use to
                the lease form alone.
        """

    def form(self, group: str = "a", *, cap: int | None = None, by: str = "one") -> ClaimForm:
        """The claim form of one instance, the same each time."""
        served = group if self.spec.group is not None else None
        key = (served, cap, by)
        if key not in self._forms:
            # Or two instances would make one token in one instant.
            self._forms[key] = self.open(served, cap, step=100 * len(self._forms))
        return self._forms[key]

    async def claim(
        self, most: int = 1, group: str = "a", *, cap: int | None = None, by: str = "one"
    ) -> list[Claimed]:
        """Claim until there are so many rows, or no more: by one claim, or by one for each row.

        Args:
            most: Most rows to take.
            group: Of which group, where the table has groups.
            cap: The most attempts that the form is told; None: no cap.
            by: Names the instance that claims.
        """
        form = self.form(group, cap=cap, by=by)
        claimed: list[Claimed] = []
        while len(claimed) < most:
            rows = (await self.claim_once(form, self.rules.rows_a_claim or most)).rows
            claimed += rows
            if not rows or self.rules.rows_a_claim is None:
                break
        return claimed

    async def claim_one(
        self, most: int = 1, group: str = "a", *, cap: int | None = None, by: str = "one"
    ) -> Claimed:
        """As `claim`, where one row is to come."""
        rows = await self.claim(most, group, cap=cap, by=by)
        if len(rows) != 1:
            raise AssertionError(f"one row was to be claimed, not {len(rows)}: ids {ids(rows)}")
        return rows[0]

    async def claim_once(self, form: ClaimForm, limit: int) -> Claim:
        """One claim."""
        claim = await form.claim(limit=limit)
        for row in claim.rows:
            self._holders[id(row.fence)] = row.fence, form
            self._in_work[id(row.fence)] = row
        return claim

    async def settle(self, row: Claimed, settlement: Settlement) -> Settled:
        """Settle a row by the form that claimed it."""
        self._in_work.pop(id(row.fence), None)
        (settled,) = await self.holder(row).settle([(row.fence, settlement)])
        return settled

    async def release(self, row: Claimed, *, give_back: bool) -> Settled:
        """Release a row by the form that claimed it."""
        self._in_work.pop(id(row.fence), None)
        (settled,) = await self.holder(row).release([(row.fence, give_back)])
        return settled

    def holder(self, row: Claimed) -> ClaimForm:
        """The form that claimed a row."""
        return self._holders[id(row.fence)][1]

    async def renew(self, row: Claimed) -> tuple[Claimed, Renewal]:
        """Renew a row's hold; returns the row as it is held now."""
        renewal = await self.holder(row).renew([(row.fence, row.reading)], timeout=5)
        if row.fence.id not in renewal.renewed or renewal.reading is None:
            return row, renewal
        fence = replace(row.fence, tokens=(renewal.renewed[row.fence.id],))
        self._holders[id(fence)] = fence, self.holder(row)
        renewed = replace(row, fence=fence, reading=renewal.reading)
        self._in_work[id(fence)] = renewed
        return renewed, renewal

    @abstractmethod
    async def crash(self, row: Claimed) -> None:
        """End the process that holds a row: nothing of it reaches the database any more.

        Returns when what its session held is free. A lease stays in the row.
        """

    async def let_go(self) -> None:
        """Give rows in work back, close the forms, and set the clock to its start."""
        for row in list(self._in_work.values()):
            await self.release(row, give_back=True)
        await self.close_forms()
        self._holders.clear()
        self.clock.elapsed = timedelta(0)

    async def close_forms(self) -> None:
        """Let go of rows in work, as a service does at its end."""
        forms = list(self._forms.values())
        self._forms.clear()
        for form in forms:
            await form.close()
