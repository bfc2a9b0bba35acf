"""`CrashAndResume`: a state machine that crashes a service and sees whether it resumes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from inboxkit import Database, Service
from inboxkit.errors import DeclarationError
from inboxkit_testing.crashpoints import When
from inboxkit_testing.errors import InvariantViolation
from inboxkit_testing.world import World

from . import traffic_rules
from .cells import Cell
from .replay_case import Names, replay_case
from .running import TestCaseOf, current_cell, lone_cell, test_case_of
from .steps import Steps
from .traffic import Traffic, drafts

if TYPE_CHECKING:
    from inboxkit_testing.backends import BackendName

__all__ = ["CrashAndResume"]

T = TypeVar("T")

_HOSTS = ("a", "b", "c", "d")
_NAMES = st.sampled_from(["a", "a", "b"])
# All choices of a step in one number: the order in which statements that wait are let through. Without an
# upper bound Hypothesis makes one choice for it instead of two, and a step that only advances is short
# enough (five choices) for it to be dropped in one go.
_ORDERS = st.integers(min_value=0)
# A settlement, and the service's own next write: what matters most, and what can be read. Most numbers
# fall on claims, of which there are many; they reach every statement of a short handler.
_NAMED = st.sampled_from(["settle", "execute"])
_STATEMENTS = _NAMED | st.integers(1, 12)
_FIRST_STATEMENTS = _NAMED | st.integers(1, 7)
# What a service writes and reads itself, of which it may think that it never fails: by the names that such
# statements have, whatever they say, or by number, for those that come later in a handler.
_OWN = st.sampled_from([*["execute"] * 5, *["fetch"] * 2, 2, 3, 4, 5, 6])
_TIMES_REFUSED = st.sampled_from([1, 1, 2])
# Name and disturbance are one choice, for the same reason as above.
_DISTURBANCES = st.sampled_from(
    [
        (name, how)
        for how in ("crash", "stop", "stop, cancel", "cut, fail", "cut, hang")
        for name in ("a", "a", "b")
    ]
)
_WHEN: st.SearchStrategy[When] = st.sampled_from(["before", "after", "reply lost"])
_TIMES = st.runner().flatmap(lambda machine: machine.times)
_PAUSES = st.runner().flatmap(lambda machine: machine.pauses)
_LOSSES = st.runner().flatmap(lambda machine: machine.losses)
_LATE = _TIMES
_REFUSED = st.tuples(st.sampled_from(["renew", "settle", "claim"]), st.sampled_from([1, 3, 50]))
_SKEWS = st.runner().flatmap(lambda machine: machine.skews)
_DRIFTS = st.runner().flatmap(lambda machine: machine.drifts)


@cache
def _one_of(values: tuple[T, ...]) -> st.SearchStrategy[T]:
    """The same strategy each time: Hypothesis looks closely at each that it meets."""
    return st.sampled_from(values)


class CrashAndResume(RuleBasedStateMachine):
    """Runs a service as Hypothesis likes it: crashed, cut off, late, restarted; and judges the end.

    A subclass says what the service is, what is published to it, and what must have come of it::

        class Shop(CrashAndResume):
            traffic = [traffic(ORDERS, lambda n: Order(id=n, cents=500))]

            def service(self, database: Database) -> Service:
                return shop.service(database)

            async def check(self, world: World) -> None:
                for sent in world.published:
                    count = await world.database.fetch_value(
                        "SELECT count(*) FROM invoices WHERE order_id = $1", sent.message.id
                    )
                    assert count == 1 if sent.is_known else count <= 1

        TestShop = Shop.TestCase

    Each example begins with empty tables and one or two instances. Then rows are published, time
    passes, instances are stopped, killed at chosen statements, restarted with clocks that are a bit
    off, cut from the database; statements are late or refused, and statements of concurrent handlers
    go in a chosen order. At the end all that is called off, the service finishes its work, the rules
    of the queue are checked (`History.check_all`), and then `check`. What fails is shrunk, and shown
    as steps, as a timeline, and as a pytest case that does the same again.

    The service must be deterministic but for what the machine does to it: its randomness from
    `database.random`, its time from `delivery.clock`, no state that outlives a machine. `self` is new
    in each example, so what a test must remember of one (mails that a fake has taken) belongs there.

    It is a `RuleBasedStateMachine`, so rules of one's own may be added; `do` makes their calls.
    ``@settings``, ``@seed`` and ``@reproduce_failure`` go on the class. `TestCase` runs on the
    databases and loops that ``--inbox-db`` and ``--inbox-backend`` name (SQLite in the loop's thread);
    outside of pytest on asyncio.
    """

    __test__ = False

    traffic: ClassVar[Sequence[Traffic]] = ()
    """What is published."""
    keep: ClassVar[Collection[str]] = ()
    """Tables that are not emptied between examples, beside those of migration tools."""
    instances: ClassVar[int] = 2
    """Most instances at once, 1 to 4."""
    database: ClassVar[str | None] = None
    """Where: a kind such as ``"postgres"``, or a URL of a database that may be emptied; None: what
    ``--inbox-db`` names."""
    backend: ClassVar[BackendName | None] = None
    """Which loop; None: those that ``--inbox-backend`` names."""

    TestCase: TestCaseOf = test_case_of  # type: ignore[assignment]

    # What a subclass says

    def service(self, database: Database) -> Service:
        """The service over a database; called anew for each start of an instance."""
        raise NotImplementedError

    async def setup(self, database: Database) -> None:
        """Create tables; once, before the first example.

        Not needed for what the service's `on_startup` creates. Rows belong in `populate`.
        """

    async def populate(self, database: Database) -> None:
        """Write the rows that each example begins with; before each, into tables that are empty.

        The service's tables must be there: let `setup` create them.
        """

    async def check(self, world: World) -> None:
        """See whether everything that was published has had its effects, once; raise if not.

        Read the service's tables through ``world.database``; ``world.published`` tells what was
        published, ``world.rows(Row)`` what is left in a table, ``world.history`` what happened.
        """

    # A machine

    def __init__(self) -> None:
        check_machine(type(self))
        super().__init__()
        self._error_before = sys.exc_info()[1]
        self._resources = ExitStack()
        self._numbers = 0
        self._world: World | None = None
        self._steps: Steps | None = None
        self._cell: Cell | None = None

    @property
    def world(self) -> World:
        """The world of this example."""
        return self.steps.world

    def do(self, function: Any, *args: Any) -> Any:
        """Call a function of the world and these arguments as a step; an async one is awaited.

        For rules of one's own. So that it can be shown as source, the function is one of a module and
        the arguments are values.
        """
        steps = self.steps
        assert self._cell is not None
        return self._cell.call(steps.call, function, *args)

    def next_number(self) -> int:
        """A number for a message: 1, 2, …"""
        self._numbers += 1
        return self._numbers

    # Steps

    @initialize(second=st.booleans(), skew=_SKEWS, drift=_DRIFTS, order=_ORDERS)
    def begin(self, second: bool, skew: timedelta, drift: float, order: int) -> None:
        """One instance, or two, of which the second may have a wrong clock."""
        self.step(order, self.steps.start, "a", timedelta(0), 0.0)
        if second and self.instances > 1:
            name = self.steps.first_down(self.hosts)
            if name is not None:
                self.step(None, self.steps.start, name, skew, drift)

    @precondition(lambda self: self.steps.first_down(self.hosts) is not None)
    @rule(skew=_SKEWS, drift=_DRIFTS, order=_ORDERS)
    def start(self, skew: timedelta, drift: float, order: int) -> None:
        """Start the first instance that is down."""
        name = self.steps.first_down(self.hosts)
        assert name is not None
        self.step(order, self.steps.start, name, skew, drift)

    @rule(what=_DISTURBANCES, order=_ORDERS)
    def disturb(self, what: tuple[str, str], order: int) -> None:
        """A crash while nothing is in flight, an orderly stop, or a cut from the database."""
        steps = self.steps
        name, how = what
        match how:
            case "crash":
                self.step(order, steps.crash, name)
            case "stop" | "stop, cancel":
                self.step(order, steps.stop, name, how == "stop, cancel")
            case _:
                self.step(order, steps.partition, name, "fail" if how == "cut, fail" else "hang")

    @rule(name=_NAMES, statement=_STATEMENTS, how=_WHEN | _LATE | _REFUSED)
    def arm(self, name: str, statement: int | str, how: When | float | tuple[str, int]) -> None:
        """Something goes wrong with a statement to come, or with those of a name."""
        steps = self.steps
        if isinstance(how, tuple):
            self.step(None, steps.refuse, name, *how)
        elif isinstance(how, str):
            self.step(None, steps.crash_at, name, statement, how)
        else:
            self.step(None, steps.delay_at, name, statement, how)

    @precondition(lambda self: self.steps.first_cut() is not None)
    @rule(order=_ORDERS)
    def heal(self, order: int) -> None:
        """The first that is cut off reaches the database again."""
        name = self.steps.first_cut()
        assert name is not None
        self.step(order, self.steps.heal, name)

    @rule(seconds=_TIMES, order=_ORDERS)
    def advance(self, seconds: float, order: int) -> None:
        """Time passes."""
        self.step(order, self.steps.advance, seconds)

    # Rules that need the traffic, and so are made for each subclass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.traffic or not all(isinstance(one, Traffic) for one in cls.traffic):
            return  # told when the test runs, since a class between may leave it open
        rows = st.lists(drafts(cls.traffic), min_size=1, max_size=2)
        several = st.lists(drafts(cls.traffic), min_size=2, max_size=3)
        by = st.sampled_from(["a", None, "b"])
        made = {
            "publish": rule(rows=rows, by=by, order=_ORDERS)(traffic_rules.publish),
            "crash_while_handling": rule(
                rows=rows, name=_NAMES, statement=_STATEMENTS, when=_WHEN, order=_ORDERS
            )(traffic_rules.crash_while_handling),
            "refuse_while_handling": rule(
                rows=rows, name=_NAMES, statement=_OWN, times=_TIMES_REFUSED, order=_ORDERS
            )(traffic_rules.refuse_while_handling),
            "late_while_handling": rule(
                rows=several,
                name=_NAMES,
                statement=_STATEMENTS,
                seconds=_TIMES,
                order=_ORDERS,
            )(traffic_rules.late_while_handling),
            "lose_leases_while_handling": precondition(lambda self: self.steps.facts.has_leases)(
                rule(
                    rows=rows,
                    name=_NAMES,
                    late=st.none() | _STATEMENTS,
                    seconds=_LOSSES,
                    order=_ORDERS,
                )(traffic_rules.lose_leases_while_handling)
            ),
            "keep_crashing": rule(
                rows=rows,
                name=_NAMES,
                # None at all is the least, so that a crash that does not matter is not shown.
                crashes=st.lists(st.tuples(_FIRST_STATEMENTS, _WHEN), max_size=5),
                seconds=_PAUSES,
                order=_ORDERS,
            )(traffic_rules.keep_crashing),
        }
        for name, function in made.items():
            if name not in vars(cls):
                setattr(cls, name, function)

    # The end

    def teardown(self) -> None:
        """Fair weather, and the judgement; not where a step has failed already."""
        error = sys.exc_info()[1]
        has_failed = error is not None and error is not self._error_before
        try:
            if self._steps is None:
                return
            if has_failed:
                if isinstance(error, Exception):
                    self._explain(error)
                return
            try:
                self._finish()
            except Exception as failure:
                self._explain(failure)
                raise
        finally:
            self._close()

    def _finish(self) -> None:
        steps, cell = self.steps, self._cell
        assert cell is not None
        cell.call(steps.finish)
        steps.world.history.check_all()
        cell.call(self.check, steps.world)

    def rest(self) -> None:
        """An example without any step but a start; for the kit."""
        try:
            self.begin(second=False, skew=timedelta(0), drift=0.0, order=0)
            self._finish()
        finally:
            self._close()

    def _explain(self, error: Exception) -> None:
        steps, cell = self._steps, self._cell
        assert steps is not None
        assert cell is not None
        broken = error.rule if isinstance(error, InvariantViolation) else ""
        is_rule = bool(broken)
        kind = (
            "a rule of the queue was broken"
            if is_rule
            else "the queue kept its rules; this was not right"
        )
        told = str(error).partition("\n")[0]
        timeline = "\n".join(steps.world.timeline.lines())
        note(f"\n{kind}: {type(error).__name__}: {told}")
        if broken.startswith("one_in_work"):
            note(
                "A handler that shields itself, or waits for a thread, works on when its lease is lost: "
                "look for that before you look in the library"
            )
        note(f"\nWhat happened:\n{timeline}")
        source = replay_case(
            steps.calls,
            names=self._names(),
            schedule=cell.order.schedule,
            backend=cell.backend,
            dialect=cell.dialect,
            url=cell.url,
        )
        note(f"\nThe same as a test, on {cell.backend} and {cell.dialect}:\n\n{source}")

    def _names(self) -> Names:
        kind = type(self)
        has_setup = kind.setup is not CrashAndResume.setup
        has_rows = kind.populate is not CrashAndResume.populate
        return Names(
            kind,
            kind.service,
            kind.setup if has_setup else None,
            kind.populate if has_rows else None,
            kind.check,
        )

    def _close(self) -> None:
        cell, world = self._cell, self._world
        self._steps = self._world = None
        try:
            if cell is not None and world is not None:
                cell.end(world)
        finally:
            self._resources.close()

    # Making steps

    @property
    def steps(self) -> Steps:
        """What makes steps; for the kit. The world is opened when this is first asked for."""
        if self._steps is None:
            cell = current_cell()
            if cell is None:
                cell = self._resources.enter_context(lone_cell(type(self)))
            self._cell = cell
            self._world = cell.begin(self.service)
            self._steps = Steps(self._world, cell.facts)
        return self._steps

    def step(self, order: int | None, async_fn: Any, *args: Any) -> None:
        """Make a step; for the kit.

        Args:
            order: Which of the waiting statements goes next, as `Order`; None: as before.
            async_fn: The step.
            args: Its arguments.
        """
        cell = self._cell
        assert cell is not None
        if order is not None:
            cell.order.of_step(order)
        cell.call(async_fn, *args)

    @property
    def _facts(self) -> Any:
        self.steps  # noqa: B018 - opens it
        assert self._cell is not None
        return self._cell.facts

    @property
    def hosts(self) -> Sequence[str]:
        """Names of the instances that may run."""
        return _HOSTS[: self.instances]

    @property
    def times(self) -> st.SearchStrategy[float]:
        """Seconds after which something may happen to this service."""
        return _one_of(self._facts.times)

    @property
    def pauses(self) -> st.SearchStrategy[float]:
        """Seconds after which an instance that has crashed is started again."""
        return _one_of(self._facts.pauses)

    @property
    def losses(self) -> st.SearchStrategy[float]:
        """Seconds after which a lease that is not renewed is somebody else's."""
        return _one_of(self._facts.losses)

    @property
    def skews(self) -> st.SearchStrategy[timedelta]:
        """How far a clock may be off."""
        return _one_of(self._facts.skews)

    @property
    def drifts(self) -> st.SearchStrategy[float]:
        """How fast a clock may go wrong."""
        return _one_of(self._facts.drifts)


def check_machine(kind: type[CrashAndResume]) -> None:
    """See that a subclass says what it must.

    Raises:
        DeclarationError: It does not; says how.
    """
    name = kind.__name__
    if kind.service is CrashAndResume.service:
        raise DeclarationError(
            f"{name} needs `def service(self, database: Database) -> Service`, which makes the service over "
            "the database that it is given"
        )
    if not kind.traffic:
        raise DeclarationError(
            f"{name} has no traffic, so nothing would happen: traffic = [traffic(QUEUE, strategy)]"
        )
    for one in kind.traffic:
        if not isinstance(one, Traffic):
            raise DeclarationError(
                f"{name}.traffic: expected what traffic(QUEUE, strategy) returns, not {one!r}"
            )
    for each in ("check", "setup", "populate"):
        if not inspect.iscoroutinefunction(getattr(kind, each)):
            raise DeclarationError(
                f"{name}.{each} must be an async function: async def {each}(self, …)"
            )
    if inspect.iscoroutinefunction(kind.service):
        raise DeclarationError(f"{name}.service makes a Service, which takes no waiting: write def")
    if type(kind.instances) is not int or not 1 <= kind.instances <= len(_HOSTS):
        raise DeclarationError(
            f"{name}.instances is a number from 1 to {len(_HOSTS)}, not {kind.instances!r}"
        )
