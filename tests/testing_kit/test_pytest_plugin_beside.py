"""The plugin in runs of its own: beside other plugins, when it is misused, and what failures look like."""

from __future__ import annotations

import hypothesis  # noqa: F401 - as trio
import pytest
import trio  # noqa: F401 - pytester forgets what a run in this process imports, and would do so for each

import inboxkit_testing  # noqa: F401 - as trio
from inboxkit_testing import servers

OURS = """
import anyio, pytest, sniffio
from hypothesis import given, settings, strategies as st

@pytest.fixture
async def five(virtual_clock):
    await anyio.sleep(5)
    yield virtual_clock.monotonic()
    await anyio.sleep(5)

@pytest.fixture
def six(five):
    return five + 1

async def test_plain(six, inbox_backend):
    assert sniffio.current_async_library() == inbox_backend
    assert six == 6

@settings(max_examples=3)
@given(number=st.integers())
async def test_given(number, five):
    assert five == 5

class TestIn:
    async def test_method(self, inbox_database, five, virtual_clock):
        assert await inbox_database.fetch_value("SELECT 1") == 1
"""
THEIRS = {
    # All of them at once, in a worker of pytest-xdist.
    "all": (
        "asyncio_mode = strict\nasyncio_default_fixture_loop_scope = function",
        """
        import asyncio, pytest, pytest_asyncio, sniffio, trio
        @pytest_asyncio.fixture
        async def one():
            return asyncio.get_running_loop()
        @pytest.mark.asyncio
        async def test_of_asyncio(one, worker_id):
            assert worker_id == "gw0"
            assert one is asyncio.get_running_loop()
        @pytest.mark.trio
        async def test_of_trio(autojump_clock):
            await trio.sleep(5)
        @pytest.mark.anyio
        async def test_of_anyio(anyio_backend):
            assert sniffio.current_async_library() == anyio_backend
        """,
    ),
    "asyncio-auto": (
        "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function",
        """
        import asyncio, pytest
        @pytest.fixture
        async def one():
            return asyncio.get_running_loop()
        async def test_theirs(one):
            assert one is asyncio.get_running_loop()
        """,
    ),
    "trio": (
        "trio_mode = true",
        """
        import trio, pytest
        @pytest.fixture
        async def one():
            return trio.lowlevel.current_trio_token()
        async def test_theirs(one, autojump_clock):
            assert one is trio.lowlevel.current_trio_token()
        """,
    ),
    "anyio-auto": (
        "anyio_mode = auto",
        """
        import anyio, pytest, sniffio
        @pytest.fixture
        async def one():
            return sniffio.current_async_library()
        @pytest.mark.parametrize("anyio_backend", ["trio"])
        async def test_theirs(one):
            assert one == "trio"
        """,
    ),
}
NEEDS = {
    "all": ["pytest_asyncio", "pytest_trio", "xdist"],
    "asyncio-auto": ["pytest_asyncio"],
    "trio": ["pytest_trio"],
}


def without(*plugins: str) -> list[str]:
    return [argument for plugin in plugins for argument in ("-p", f"no:{plugin}")]


ALONE = without("asyncio", "trio", "xdist", "cacheprovider")


@pytest.mark.parametrize("beside", THEIRS)
def test_it_runs_beside_other_plugins(pytester: pytest.Pytester, beside: str) -> None:
    for module in NEEDS.get(beside, ()):
        pytest.importorskip(module)
    ini, theirs = THEIRS[beside]
    plugin = beside.partition("-")[0]
    pytester.makefile(".ini", pytest=f"[pytest]\n{ini}\n")
    pytester.makepyfile(test_ours=OURS, test_theirs=theirs)
    if beside == "all":
        options = ["-n1"]
    else:
        others = [name for name in ("asyncio", "trio") if name != plugin]
        options = without(*others, "xdist")
    result = pytester.runpytest_subprocess(*options, "-W", "error", "-v")
    result.assert_outcomes(passed=10 if beside == "all" else 7)
    result.stdout.fnmatch_lines_random(
        ["*test_plain?asyncio?*", "*test_plain?trio?*", "*test_method?sqlite-trio?*"]
    )


def test_a_module_marked_for_anyio_runs_ours_once_for_each_backend(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        OURS
        + """
pytestmark = pytest.mark.anyio
async def test_theirs(anyio_backend):
    assert sniffio.current_async_library() == anyio_backend
"""
    )
    result = pytester.runpytest_inprocess(*ALONE, "-W", "error", "-v")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines_random(["*::test_plain?asyncio?*", "*::test_method?sqlite-trio?*"])


def test_a_run_of_unrelated_tests_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        def test_unrelated():
            heavy = {"anyio", "asyncio", "trio", "hypothesis", "inboxkit", "psycopg", "asyncpg"}
            assert sorted(heavy & set(sys.modules)) == []
            assert "inboxkit_testing.pytest_plugin" in sys.modules
        """
    )
    others = without("anyio", "hypothesispytest", "pytester", "unraisableexception")
    result = pytester.runpytest_subprocess(*ALONE, *others)
    result.assert_outcomes(passed=1)


def test_misuse_is_told_plainly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import anyio, pytest

        async def test_two_clocks(virtual_clock, frozen_clock): ...

        @pytest.fixture(scope="module")
        async def wide(): ...
        async def test_wide(wide, virtual_clock): ...

        @pytest.mark.inbox(sneeds=100)
        async def test_marker(): ...

        @pytest.fixture
        async def late(): ...
        async def test_late(virtual_clock, request):
            request.getfixturevalue("late")

        @pytest.fixture
        def placeholder(request):
            return request.getfixturevalue("inbox_database").clock
        async def test_placeholder(inbox_database, placeholder): ...

        @pytest.fixture
        async def twice():
            yield
            yield
        async def test_twice(twice, virtual_clock): ...

        @pytest.fixture
        async def silent():
            with anyio.CancelScope() as scope:
                yield scope
        async def test_silent(silent, virtual_clock):
            silent.cancel()
            await anyio.sleep(1)

        def test_sync_world(inbox_world): ...

        def test_sync_database(inbox_database):
            anyio.run(inbox_database.execute, "SELECT 1")

        def test_sync_clock(virtual_clock):
            anyio.run(virtual_clock.sleep, 1)

        async def test_no_factory(inbox_app):
            await inbox_app(object())

        async def test_no_world(inbox_world):
            await inbox_world.start("a")

        @pytest.fixture(scope="session")
        def shared(inbox_database): ...
        async def test_shared(shared, virtual_clock): ...
        """
    )
    result = pytester.runpytest_subprocess(*ALONE, "--inbox-backend=trio")
    result.assert_outcomes(errors=6, failed=7)
    text = result.stdout.str()
    for message in (
        "name virtual_clock (it jumps) or frozen_clock (it moves by advance), not both",
        "'wide' has the scope 'module'",
        "@pytest.mark.inbox: it takes seed= or seeds=",
        "'late' needs the test's loop",
        "no 'clock': the fixture 'inbox_database' is made when the test runs",
        "'twice' has more than one 'yield'",
        "'silent' cancelled the test",
        "inbox_world runs services, so the test that uses it must be async",
        "inbox.db> is not open: use it inside `async with database:`",
        "no run drives this VirtualClock: call `inboxkit_testing.run(main, clock=clock)`",
        "inbox_app takes a function of the database that returns a Service",
        "no 'start': it makes a World, which may have it: `world = await inbox_world(service)`",
        "function scoped fixture inbox_database with a session scoped request",
    ):
        assert message in text, message


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--inbox-db=oracle", "unknown name 'oracle'"),
        ("--inbox-db=,", "no name in ','"),
        ("--inbox-backend=curio", "unknown name 'curio'"),
    ],
)
def test_wrong_options_stop_the_run(pytester: pytest.Pytester, option: str, message: str) -> None:
    result = pytester.runpytest_inprocess(*ALONE, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option.partition('=')[0]}: {message}*"])


def test_failures_show_the_test_and_nothing_of_the_loop(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import anyio, pytest

        async def crash():
            await anyio.sleep(3)
            raise ValueError("in the background")

        @pytest.fixture
        async def background(virtual_clock):
            async with anyio.create_task_group() as group:
                group.start_soon(crash)
                yield
                group.cancel_scope.cancel()

        @pytest.fixture
        async def untidy(virtual_clock):
            yield
            raise OSError("cannot tidy up")

        @pytest.fixture
        async def broken(virtual_clock):
            raise KeyError("never made")

        async def test_fails(virtual_clock):
            await anyio.sleep(1)
            assert virtual_clock.monotonic() == 2
        async def test_background(background):
            await anyio.sleep(10)
        async def test_both(untidy):
            assert 0, "the test itself"
        async def test_broken(broken): ...
        async def test_skips(virtual_clock):
            pytest.skip("at run time")
        @pytest.mark.xfail(strict=True)
        async def test_xfails(virtual_clock):
            assert 0
        async def test_stalls(virtual_clock):
            await anyio.Event().wait()
        """
    )
    pytester.makeconftest(
        """
        import pytest
        from inboxkit_testing import VirtualClock
        @pytest.fixture
        def virtual_clock():
            return VirtualClock(stall=0.1)
        """
    )
    result = pytester.runpytest_inprocess(*ALONE, "-v")
    result.assert_outcomes(failed=10, skipped=2, xfailed=2)
    text = result.stdout.str()
    for message in (
        "ValueError: in the background",
        "the test itself",
        "OSError: cannot tidy up",
        "(in the fixture 'untidy', after its yield)",
        "KeyError: 'never made'",
        "(in the set-up of the fixture 'broken')",
        "ClockStalledError",
    ):
        assert message in text, message
    fails = text[text.index("_ test_fails[asyncio] _") : text.index("_ test_fails[trio] _")]
    assert "assert 1.0 == 2" in fails
    assert "inboxkit_testing" not in fails
    assert "anyio/_core" not in fails


def test_fixtures_that_examples_share_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from hypothesis import given, strategies as st
        @given(number=st.integers())
        async def test_shared(number, virtual_clock, tmp_path): ...
        """
    )
    result = pytester.runpytest_inprocess(*ALONE, "--inbox-backend=asyncio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["all examples of @given would share the fixture 'tmp_path'*"])


@pytest.mark.parametrize(("required", "outcome"), [("", "skipped"), ("sqlite, postgres", "errors")])
def test_a_missing_server_skips_unless_it_is_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: str, outcome: str
) -> None:
    monkeypatch.setenv("INBOXKIT_REQUIRE", required)

    def none_here() -> None:
        raise servers.ServerUnavailableError("no server today")

    monkeypatch.setattr(servers, "postgres_server", none_here)
    pytester.makepyfile("async def test_it(inbox_database): ...")
    result = pytester.runpytest_inprocess(*ALONE, "--inbox-db=postgres", "-rs")
    result.assert_outcomes(**{outcome: 2})
    result.stdout.fnmatch_lines(["*no server today*"])


def test_workers_share_a_server(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xdist")
    for name in ("INBOXKIT_TEST_POSTGRES_URL", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(
        """
        import pathlib, pytest
        @pytest.mark.parametrize("number", range(2))
        async def test_port(inbox_database, number, worker_id):
            name = await inbox_database.fetch_value("SELECT current_setting('port')")
            with open(f"port-{name}", "a") as file:
                print(worker_id, file=file)
        """
    )
    options = [
        *without("asyncio", "trio", "cacheprovider"),
        "--inbox-db=postgres",
        "--inbox-backend=asyncio",
        "-n2",
        "--dist=each",
    ]
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=4)
    (ports,) = pytester.path.glob("port-*")
    assert set(ports.read_text().split()) == {"gw0", "gw1"}
