"""The conformance suite as a third party uses it: from the installed package, in tests of its own."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap

import pytest

from inboxkit_testing import conformance

FORWARDING = """
from dataclasses import replace

import pytest

from inboxkit.abc import ClaimForm
from inboxkit_testing.conformance import (
    LEASE, Conformance, DatabaseBench, LeaseConformance, ModelBench, on_bench
)


class Forwarding(ClaimForm):
    lease = LEASE

    def __init__(self, form, table=None):
        self.form = form
        self.table = table

    async def opened(self):
        return self.form

    async def claim(self, *, limit):
        return await (await self.opened()).claim(limit=limit)

    async def renew(self, holds, *, timeout):
        return await (await self.opened()).renew(holds, timeout=timeout)

    async def settle(self, settlements):
        return await (await self.opened()).settle(settlements)

    async def release(self, releases):
        return await (await self.opened()).release(releases)

    async def begin(self, fence):
        return await (await self.opened()).begin(fence)

    async def close(self):
        await (await self.opened()).close()
"""
MY_FORM = """
from inboxkit._core.lease import ExpirySteps
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect


class MyForm(Forwarding):
    steps = 0

    def __init__(self, database, spec, **settings):
        super().__init__(None)
        self.given = database, spec, settings
        MyForm.steps += 100

    async def opened(self):
        if self.form is None:
            database, spec, settings = self.given
            dialect = get_dialect("sqlite")
            info = await database.run(dialect.describe(spec))
            steps = ExpirySteps(MyForm.steps % 1000)
            self.form = open_form(database, spec, info, dialect, steps=steps, **settings)
        return self.form


"""
BROKEN = """

class Wrapped(ModelBench):
    def open(self, group, cap, step=0):
        return self.wrapper(super().open(group, cap, step), self.db.table(self.table))


class Unfenced(Forwarding):
    def unfenced(self, fence):
        row = self.table.find(fence.id)
        return fence if row is None else replace(fence, tokens=(row.locked_until,), attempt=None)

    async def settle(self, settlements):
        return await self.form.settle([(self.unfenced(f), s) for f, s in settlements])


class Early(Forwarding):
    async def claim(self, *, limit):
        there = [(row, row.retry_after) for row in self.table.rows]
        for row, due in there:
            row.retry_after = due and min(due, self.form._read_clock().now)
        try:
            return await self.form.claim(limit=limit)
        finally:
            for row, due in there:
                row.retry_after = due


class Uncounted(Forwarding):
    async def claim(self, *, limit):
        claim = await self.form.claim(limit=limit)
        for one in claim.rows:
            self.table.find(one.fence.id).attempt = one.attempt
        rows = [replace(one, fence=replace(one.fence, attempt=one.attempt)) for one in claim.rows]
        return replace(claim, rows=tuple(rows))


class OnModel(LeaseConformance):
    @pytest.fixture
    def bench(self):
        bench = Wrapped("lease")
        bench.wrapper = self.wrapper
        return bench


class TestSound(OnModel):
    wrapper = Forwarding


class TestUnfenced(OnModel):
    wrapper = Unfenced


class TestEarly(OnModel):
    wrapper = Early


class TestUncounted(OnModel):
    wrapper = Uncounted


class TestForgotten(Conformance):
    test_one = LeaseConformance.test_finish_deletes_its_row_alone
"""


def examples() -> list[str]:
    """The code in the package's docstring."""
    found = re.findall(r"(?:^    .*\n|^\n)+", inspect.getdoc(conformance) + "\n", re.M)
    return [textwrap.dedent(one) for one in found if one.strip()]


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=text)
    plugins = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:trio")
    return pytester.runpytest_inprocess(*plugins, *options)


def test_examples_of_the_documentation_run_as_they_stand(pytester: pytest.Pytester) -> None:
    database, driver, form, own = examples()
    assert "Database.over" in driver
    added = own.partition("...\n")[2].replace("b: Bench", "b")
    text = database + FORWARDING + MY_FORM + form + added
    half = "TestLease and asyncio or TestMyForm and trio"
    result = run(pytester, text, "--inbox-backend=asyncio,trio", "-k", half)
    result.assert_outcomes(passed=35 + 36, deselected=35 + 36)


FOUND = {
    "TestUnfenced": {"test_late_holder_writes_nothing"},
    "TestEarly": {
        "test_claim_order_is_priority_then_due_time_then_id",
        "test_head_that_is_not_due_holds_its_group",
        "test_postpone_counts_from_the_settlement",
        "test_retry_keeps_its_place_and_postponing_moves_it_behind",
        "test_row_is_due_to_the_microsecond",
    },
}
"""The tests that find a broken form, and no others."""
MESSAGES = (
    "*E * {'finish': 'written'} != {'finish': 'lost'}",  # asserts are rewritten
    "*E *assert [[]1[]] == [[][]]*",
    "*E *one row was to be claimed, not 2: ids [[]1, 2[]]",
    "*E *assert [[]1[]] == [[]2[]]*",
    "*TestForgotten must override the fixture `bench`: return a Bench*",
)


def test_broken_forms_fail_where_they_are_broken(pytester: pytest.Pytester) -> None:
    result = run(pytester, FORWARDING + BROKEN, "--inbox-backend=trio", "-rf", "--tb=short")
    failed: dict[str, set[str]] = {}
    for name, test in re.findall(r"^FAILED test_mine.py::(\w+)::(\w+)", result.stdout.str(), re.M):
        failed.setdefault(name, set()).add(test)
    uncounted = failed.pop("TestUncounted")
    assert failed == FOUND
    assert {
        "test_attempts_as_read_and_as_stored",
        "test_row_of_a_crashed_holder_comes_back",
    } < uncounted
    result.assert_outcomes(passed=4 * 35 - 6 - len(uncounted), failed=6 + len(uncounted), errors=1)
    for message in MESSAGES:
        result.stdout.fnmatch_lines([message])


def test_the_kit_is_imported_without_the_suite() -> None:
    code = "import sys, inboxkit_testing; print({'pytest', 'hypothesis'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
