"""Markers and options that choose seeds: one test is run in many orders, each time anew."""

from __future__ import annotations

import re

import pytest

OTHERS = ("anyio", "asyncio", "trio", "hypothesispytest", "cacheprovider")
ALONE = ("-n0", *(f"-pno:{name}" for name in OTHERS))

RACE = """
    import anyio, pytest

    @pytest.fixture
    async def table(inbox_database):
        await inbox_database.execute("CREATE TABLE t (n integer)")
        await inbox_database.execute("INSERT INTO t VALUES (0)")
        return inbox_database

    async def add(db):
        n = await db.fetch_value("SELECT n FROM t")
        await db.execute("UPDATE t SET n = $1", n + 1)

    async def total(db):
        async with anyio.create_task_group() as group:
            group.start_soon(add, db, name="one")
            group.start_soon(add, db, name="other")
        return await db.fetch_value("SELECT n FROM t")
"""


def test_a_race_is_found_told_and_replayed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        RACE
        + """
    from inboxkit import events
    from inboxkit_testing.marks import Note, send

    @pytest.mark.inbox(seeds=100)
    async def test_race(table, virtual_clock):
        print("a run of the test")
        send(Note(at=virtual_clock.now(), instance="it", queue="", text="has begun"))
        assert await total(table) == 2
    """
    )
    options = (*ALONE, "--inbox-db=sqlite-inloop", "--inbox-backend=trio,asyncio")
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    seeds = re.findall(r"\(with the seed (\d+): to run it again, --inbox-seed=", text)
    assert len(set(seeds)) == 1
    seed = seeds[0]
    assert 0 < int(seed) < 10
    result.stdout.fnmatch_lines(
        [
            "E  *assert 1 == 2",
            "*Captured stdout call*",
            "a run of the test",
            "*Captured inbox schedule call*",
            f"seed {seed}: 11 statements took turns:",
            "*  one/?: fetch SELECT n FROM t*",
            "*  one/?: execute UPDATE t SET n = $1*before other/?: execute UPDATE*",
            "*Captured inbox timeline call*",
            "*it * has begun",
        ]
    )
    assert text.count("\na run of the test") == text.count(" has begun") == 2
    told = text[text.index("inbox schedule call") : text.index("inbox timeline call")]
    again = pytester.runpytest_inprocess(*options, f"--inbox-seed={seed}", "--show-capture=no")
    again.assert_outcomes(failed=2)
    assert "inbox schedule" not in again.stdout.str()
    # The summary, which CI shows untruncated, repeats them.
    assert again.stdout.str().count(f"E       (with the seed {seed}: to run it again") == 2
    other = pytester.runpytest_inprocess(*options, f"--inbox-seed={seed}")
    assert told in other.stdout.str()
    pytester.runpytest_inprocess(*options, "--inbox-seeds=1").assert_outcomes(passed=2)


def test_each_run_has_fixtures_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        RACE
        + """
    made, runs = [], []

    @pytest.fixture(scope="module")
    def wide():
        made.append("wide")
        yield
        made.append("end of wide")

    @pytest.fixture
    def box(wide):
        yield []
        made.append("end of box")

    class TestIt:
        def setup_method(self):
            self.values = []

        @pytest.mark.inbox(seeds=4)
        @pytest.mark.parametrize("n", [1, 2])
        async def test_it(self, table, box, n, tmp_path, monkeypatch, virtual_clock, request):
            runs.append((n, virtual_clock.monotonic(), *self.values, *box, *tmp_path.iterdir()))
            self.values.append(n)
            box.append(n)
            monkeypatch.setattr(TestIt, "values", 1, raising=False)
            (tmp_path / "a").touch()
            await virtual_clock.sleep(1)
            await add(table)
            assert await table.fetch_value("SELECT n FROM t") == 1

    def test_after(wide):
        assert runs == [(1, 0)] * 4 + [(2, 0)] * 4
        assert made == ["wide"] + ["end of box"] * 8

    def test_at_last():
        assert made[-1] == "end of box"
    """
    )
    result = pytester.runpytest_inprocess(
        *ALONE, "--inbox-db=sqlite-inloop", "--inbox-backend=trio", "-W", "error"
    )
    result.assert_outcomes(passed=4)


def test_other_outcomes_than_passing_end_the_search(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        RACE
        + """
    count = {}
    def counted(request):
        count[request.node.name] = count.get(request.node.name, 0) + 1
        return count[request.node.name]

    @pytest.mark.inbox(seeds=20)
    async def test_skips(request):
        if counted(request) == 2:
            pytest.skip("the second time")

    @pytest.mark.xfail(strict=True)
    @pytest.mark.inbox(seeds=20)
    async def test_known_race(table, request):
        counted(request)
        assert await total(table) == 2

    @pytest.mark.xfail(strict=True)
    @pytest.mark.inbox(seeds=5)
    async def test_no_race(request):
        counted(request)

    @pytest.fixture
    def untidy(request):
        yield
        assert counted(request) < 3, "untidy"

    @pytest.mark.inbox(seeds=5)
    async def test_untidy(untidy): ...

    @pytest.fixture
    def absent(request):
        assert counted(request) < 2, "absent"

    @pytest.mark.inbox(seeds=5)
    async def test_absent(absent): ...

    @pytest.fixture(scope="module")
    def wide():
        yield
        raise ValueError("wide")

    @pytest.mark.inbox(seeds=3)
    async def test_wide(wide, request):
        assert counted(request) < 3, "the last"

    def test_count():
        assert {name.partition("[")[0]: n for name, n in count.items()} == {
            "test_skips": 2, "test_known_race": 3, "test_no_race": 5, "test_untidy": 3,
            "test_absent": 2, "test_wide": 3,
        }
    """
    )
    result = pytester.runpytest_inprocess(
        *ALONE, "--inbox-db=sqlite-inloop", "--inbox-backend=asyncio", "-rA"
    )
    result.assert_outcomes(skipped=1, xfailed=1, failed=2, passed=2, errors=3)
    text = result.stdout.str()
    for line in (
        "[XPASS(strict)]",
        "ERROR at teardown of test_untidy",
        "ERROR at setup of test_absent",
        "the last",
        "ERROR at teardown of test_",
    ):
        assert line in text, line


def test_options_reach_tests_without_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        gates = []
        async def test_plain(virtual_clock):
            gates.append(virtual_clock.gate)
        @pytest.mark.inbox(seed=3)
        async def test_pinned(virtual_clock):
            gates.append(virtual_clock.gate)
        async def test_real(inbox_database):
            assert not hasattr(inbox_database.clock, "gate")
            gates.append(None)
        def test_sync(virtual_clock): ...
        def test_count(request):
            assert [gate is None for gate in gates] == [*[False] * 5, True]
        """
    )
    result = pytester.runpytest_inprocess(*ALONE, "--inbox-backend=trio", "--inbox-seeds=4")
    result.assert_outcomes(passed=5)


def test_tests_with_seeds_run_on_workers_and_under_given(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        RACE
        + """
    from hypothesis import given, settings, strategies as st

    class TestGiven:
        @settings(max_examples=2, database=None)
        @given(n=st.integers(0, 3))
        @pytest.mark.inbox(seeds=2)
        async def test_given(self, n, virtual_clock):
            assert virtual_clock.gate is not None
            await virtual_clock.sleep(n)

    @pytest.mark.inbox(seeds=30)
    async def test_race(table):
        assert await total(table) == 2
    """
    )
    result = pytester.runpytest_inprocess(
        *ALONE, "-n1", "--inbox-db=sqlite-inloop", "--inbox-backend=asyncio"
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*(with the seed *", "*Captured inbox schedule call*"])


def test_wrong_markers_are_told_plainly(pytester: pytest.Pytester) -> None:
    values = (
        "seeds=0",
        "seeds=True",
        "seeds=2.5",
        "seed='a'",
        "seed=False",
        "seed=1, seeds=2",
        "3",
    )
    tests = (
        f"@pytest.mark.inbox({value})\nasync def test_{number}(): ...\n"
        for number, value in enumerate(values)
    )
    pytester.makepyfile("import pytest\n" + "".join(tests))
    result = pytester.runpytest_inprocess(*ALONE, "--inbox-backend=asyncio")
    result.assert_outcomes(errors=7)
    text = result.stdout.str()
    for message in (
        "seeds= is how many schedules to explore, an int of at least 1; got 0",
        "seeds= is how many schedules to explore, an int of at least 1; got True",
        "seeds= is how many schedules to explore, an int of at least 1; got 2.5",
        "seed= is an int, or None for no seed; got 'a'",
        "seed= is an int, or None for no seed; got False",
        "seed= is one schedule and seeds= so many of them; give one of the two",
        "it takes seed= or seeds=, and nothing else; got Mark",
    ):
        assert f"@pytest.mark.inbox: {message}" in text, message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--inbox-seed=x"], "--inbox-seed: expected a whole number, got 'x'"),
        (["--inbox-seeds=0"], "--inbox-seeds: expected at least 1, got '0'"),
        (["--inbox-seed=1", "--inbox-seeds=2"], "--inbox-seed is one order"),
    ],
)
def test_wrong_options_stop_the_run(
    pytester: pytest.Pytester, options: list[str], message: str
) -> None:
    result = pytester.runpytest_inprocess(*ALONE, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])
