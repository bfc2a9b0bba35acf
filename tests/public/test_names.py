"""The public names: there, documented, and with the signatures that the documentation promises."""

from __future__ import annotations

import importlib
import inspect
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

import inboxkit
import inboxkit_testing
from inboxkit import Database, DeclarationError, errors, role
from inboxkit_testing import VirtualClock

MODULES = [
    "inboxkit",
    "inboxkit.abc",
    "inboxkit.broker",
    "inboxkit.clock",
    "inboxkit.codec",
    "inboxkit.contrib.asyncpg",
    "inboxkit.contrib.cron",
    "inboxkit.contrib.opentelemetry",
    "inboxkit.contrib.prometheus",
    "inboxkit.contrib.retention",
    "inboxkit.contrib.sqlalchemy",
    "inboxkit.database",
    "inboxkit.errors",
    "inboxkit.events",
    "inboxkit.insert",
    "inboxkit.queue",
    "inboxkit.role",
    "inboxkit.service",
    "inboxkit.subscriber",
    "inboxkit.table",
    "inboxkit_testing",
    "inboxkit_testing.conformance",
]
PUBLIC = sorted(
    (module, name) for module in MODULES for name in importlib.import_module(module).__all__
)
UNDOCUMENTED_KINDS = (
    "ClaimFormName",
    "DialectName",
    "OnConflict",
    "Connectable",
    "Outcome",
    "RunOnBench",
)
"""Aliases of types: an alias has no docstring of its own at run time."""


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_public_name_is_there_and_documented(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    if name in UNDOCUMENTED_KINDS:
        return
    text = inspect.getdoc(value)
    assert text
    if inspect.isclass(value):
        assert "__doc__" in vars(value)
        assert not text.startswith(f"{name}(")  # a dataclass without one says its signature
        for member, function in vars(value).items():
            plain = getattr(function, "__func__", function)
            if not member.startswith("_") and inspect.isfunction(plain):
                assert inspect.getdoc(plain), f"{name}.{member}"


def test_names_are_listed_once() -> None:
    for module in MODULES:
        names = importlib.import_module(module).__all__
        assert len(set(names)) == len(names), module


def parameters(function: Any) -> list[str]:
    """Names and defaults, a ``*`` before the keyword-only ones, as they stand in a signature."""
    shown: list[str] = []
    is_after_star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_after_star:
            is_after_star = True
            shown.append("*")
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        text = stars.get(parameter.kind, "") + parameter.name
        is_after_star = is_after_star or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        if parameter.default is not inspect.Parameter.empty:
            text += f"={parameter.default!r}"
        shown.append(text)
    return shown


SECONDS_30 = repr(timedelta(seconds=30))
SECOND = repr(timedelta(seconds=1))
POLICY = repr(inboxkit.Backoff.exponential())

SIGNATURES: dict[str, tuple[Any, list[str]]] = {
    "InboxQueue": (
        inboxkit.InboxQueue.__init__,
        ["row", "name", "message=None", "*", "lease=None", "poll_interval=None"],
    ),
    "subscriber": (inboxkit.subscriber, ["queue", "*", "batch=None", "transactional=False"]),
    "Row.of": (inboxkit.Inbox.of, ["message", "*args", "**columns"]),
    "Row.stored": (inboxkit.Inbox.stored, ["**columns"]),
    "InboxSpec.of": (inboxkit.InboxSpec.of, ["message=MISSING", "**columns"]),
    "Column": (
        inboxkit.Column,
        ["name", "generated=False", "default=MISSING", "default_factory=None", "type=None"],
    ),
    "insert_rows": (inboxkit.insert_rows, ["connection", "*rows", "on_conflict='error'"]),
    "insert_statements": (inboxkit.insert_statements, ["dialect", "*rows", "on_conflict='error'"]),
    "ack": (inboxkit.ack, []),
    "retry": (inboxkit.retry, []),
    "retry_after": (inboxkit.retry_after, ["delay"]),
    "drop": (inboxkit.drop, ["reason=''"]),
    "Settle": (inboxkit.Settle.__init__, ["outcome"]),
    "Backoff.exponential": (
        inboxkit.Backoff.exponential,
        [f"first={SECOND}", "factor=2.0", f"maximum={timedelta(hours=1)!r}", "jitter=0.1"],
    ),
    "Backoff.immediate": (inboxkit.Backoff.immediate, []),
    "Broker": (
        inboxkit.Broker.__init__,
        [
            "database",
            "*",
            f"lease={SECONDS_30}",
            f"poll_interval={SECOND}",
            "listen_notify=False",
        ],
    ),
    "Broker.publish": (
        inboxkit.Broker.publish,
        ["queue", "message", "*", "within=None", "**columns"],
    ),
    "Broker.route": (inboxkit.Broker.route, ["pattern", "row"]),
    "Broker.wake": (inboxkit.Broker.wake, ["queue"]),
    "Delivery.publish": (
        inboxkit.Delivery.publish,
        ["queue", "message", "within=None", "**columns"],
    ),
    "Service": (
        inboxkit.Service.__init__,
        [
            "name",
            "broker",
            "*",
            "lifespan=None",
            f"drain_timeout={SECONDS_30}",
            "control_table=None",
        ],
    ),
    "Service.include": (
        inboxkit.Service.include,
        [
            "subscriber",
            "*",
            "workers=1",
            "workers_by_key=None",
            "max_attempts=None",
            "dead_letter=None",
            f"on_error={POLICY}",
            f"on_decode_error={POLICY}",
            "timeout=None",
            "prefetch=0",
        ],
    ),
    "Service.run": (inboxkit.Service.run, []),
    "Service.running": (inboxkit.Service.running, []),
    "Handle.stop": (inboxkit.Handle.stop, []),
    "Handle.cancel": (inboxkit.Handle.cancel, []),
    "Database.transaction": (Database.transaction, []),
    "Database.connection": (Database.connection, []),
    "Database.execute": (Database.execute, ["sql", "*parameters"]),
    "Database.fetch": (Database.fetch, ["sql", "*parameters"]),
    "Database.fetch_one": (Database.fetch_one, ["sql", "*parameters"]),
    "Database.fetch_value": (Database.fetch_value, ["sql", "*parameters"]),
    "Transaction.after_commit": (inboxkit.Transaction.after_commit, ["function"]),
    "role.id": (role.id, ["name=None", "**given"]),
    "role.payload": (role.payload, ["name=None", "*", "init=False"]),
    "VirtualClock.advance": (VirtualClock.advance, ["by"]),
    "VirtualClock.settle": (VirtualClock.settle, []),
    "VirtualClock.external": (VirtualClock.external, ["label"]),
    "VirtualClock.watch": (VirtualClock.watch, ["limiter"]),
    "VirtualClock.at": (VirtualClock.at, ["host", "offset=datetime.timedelta(0)", "drift=0.0"]),
    "TestApp": (inboxkit_testing.TestApp.__init__, ["service"]),
    "TestApp.publish": (inboxkit_testing.TestApp.publish, ["queue", "message", "**columns"]),
    "TestApp.advance": (inboxkit_testing.TestApp.advance, ["by"]),
    "TestApp.rows": (inboxkit_testing.TestApp.rows, ["table"]),
    "TestApp.pending": (inboxkit_testing.TestApp.pending, ["table"]),
    "TestApp.dead": (inboxkit_testing.TestApp.dead, ["table"]),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    function, expected = SIGNATURES[name]
    assert parameters(function) == expected


def test_settings_of_a_database() -> None:
    shown = parameters(Database.__init__)
    assert shown[:3] == ["url", "*", "pool_size=10"]
    assert [text.partition("=")[0] for text in shown[3:]] == [
        "clock",
        "random",
        "statement_timeout",
    ]
    assert shown[-1] == f"statement_timeout={SECONDS_30}"
    assert isinstance(Database("sqlite:///x.db").clock, inboxkit.SystemClock)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"pool_size": 0}, "pool_size"),
        ({"pool_size": "3"}, "pool_size"),
        ({"pool_size": True}, "pool_size"),
        ({"clock": datetime.now}, "clock"),
        ({"random": 7}, "random"),
        ({"statement_timeout": 30}, "statement_timeout"),
        ({"statement_timeout": timedelta(0)}, "statement_timeout"),
    ],
)
def test_wrong_settings_of_a_database(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(DeclarationError, match=f"{name} must be"):
        Database("sqlite:///x.db", **settings)


def test_run_and_clock_of_the_kit() -> None:
    run = inspect.signature(inboxkit_testing.run).parameters
    assert {"backend", "clock", "seed"} <= run.keys()
    assert run["clock"].default is run["seed"].default is None
    start = inspect.signature(VirtualClock).parameters["start"].default
    assert start == datetime(2030, 1, 1, tzinfo=UTC)
    assert inboxkit_testing.TestApp.__test__ is False


def test_members_of_a_delivery() -> None:
    wanted = "id message attempt group key headers row queue database state clock lost deadline"
    assert all(hasattr(inboxkit.Delivery, name) for name in wanted.split())


def test_errors_and_their_bases() -> None:
    bases: dict[str, tuple[type[BaseException], ...]] = {
        "DeclarationError": (errors.InboxkitError, ValueError),
        "StartupError": (errors.InboxkitError,),
        "DialectError": (errors.StartupError,),
        "SchemaError": (errors.StartupError,),
        "ServerTooOldError": (errors.StartupError,),
        "ConnectError": (errors.StartupError,),
        "MissingExtraError": (errors.StartupError,),
        "NoRouteError": (errors.InboxkitError, LookupError),
        "ClosedError": (errors.InboxkitError, RuntimeError),
        "DatabaseError": (errors.InboxkitError,),
        "DatabaseBusyError": (errors.DatabaseError,),
        "OutcomeUnknownError": (errors.DatabaseError,),
        "ConstraintError": (errors.DatabaseError,),
        "PoolTimeoutError": (errors.DatabaseError,),
        "LeaseLostError": (errors.InboxkitError,),
        "TransactionTooLongError": (errors.InboxkitError,),
        "TransactionHeldError": (errors.InboxkitError,),
        "EncodeError": (errors.InboxkitError,),
        "DecodeError": (errors.InboxkitError,),
    }
    assert {*bases, "InboxkitError", "Settle"} == set(errors.__all__)
    for name, wanted in bases.items():
        assert issubclass(getattr(errors, name), wanted), name
    assert not issubclass(errors.Settle, errors.InboxkitError)
    for name in ("ClockStalledError", "SleepInTransactionError", "InvariantViolation"):
        assert issubclass(getattr(inboxkit_testing, name), Exception)


def test_facts_of_errors_are_attributes() -> None:
    encode = errors.EncodeError("no", table="t", queue="q", id=7, where="$.a")
    assert (encode.table, encode.queue, encode.id, encode.where) == ("t", "q", 7, "$.a")
    decode = errors.DecodeError("no", queue="q", id=7, where="$.a")
    assert (decode.queue, decode.id, decode.where) == ("q", 7, "$.a")
    lost = errors.LeaseLostError("no", queue="q", id=7)
    assert (lost.queue, lost.id) == ("q", 7)
    assert errors.ConstraintError("no", statement="insert", constraint="c").constraint == "c"
    assert errors.DatabaseError("no", statement="claim").statement == "claim"


def test_random_of_a_database_is_the_one_given() -> None:
    source = Random(7)
    assert Database("sqlite:///x.db", random=source).random is source
