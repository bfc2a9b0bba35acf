"""Every wrong setting of an `include` is refused there, by subscription and cure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from inboxkit import Backoff, Broker, DeclarationError, Inbox, InboxQueue, Service, role, subscriber


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    key: str = role.partition_key()
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Plain(Inbox, table="plain"):
    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


def handler(row: type[Inbox], name: str) -> Any:
    async def handle(message: bytes) -> None: ...

    queue: InboxQueue[Any, Any] = InboxQueue(row, name, bytes)
    return subscriber(queue)(handle)


def service() -> Service:
    return Service("service", Broker("sqlite:///never.db"))


ALONE: dict[str, tuple[type[Inbox], dict[str, Any], list[str]]] = {
    "max_attempts alone": (Jobs, {"max_attempts": 3}, ["come together", "dead_letter is missing"]),
    "dead_letter alone": (Jobs, {"dead_letter": "d"}, ["come together", "max_attempts is missing"]),
    "no attempt column": (
        Plain,
        {"max_attempts": 3, "dead_letter": "dead"},
        ["needs an attempt column", "'plain'", "role.attempt()"],
    ),
    "cap of zero": (Jobs, {"max_attempts": 0, "dead_letter": "d"}, ["at least 1", "not 0"]),
    "cap of text": (Jobs, {"max_attempts": "3", "dead_letter": "d"}, ["int", "'3'"]),
    "cap of True": (Jobs, {"max_attempts": True, "dead_letter": "d"}, ["int", "True"]),
    "dead letters into itself": (
        Jobs,
        {"max_attempts": 3, "dead_letter": "q"},
        ["back into itself", "name another group"],
    ),
    "empty dead letter": (Jobs, {"max_attempts": 3, "dead_letter": ""}, ["a name or a queue"]),
    "dead letter of no kind": (Jobs, {"max_attempts": 3, "dead_letter": 7}, ["a name or a queue"]),
    "both kinds of workers": (
        Jobs,
        {"workers": 2, "workers_by_key": 2},
        ["both workers and workers_by_key", "give one"],
    ),
    "workers_by_key without a key": (
        Plain,
        {"workers_by_key": 2},
        ["needs a partition key", "'plain'", "role.partition_key()"],
    ),
    "no workers": (Jobs, {"workers": 0}, ["workers", "at least 1"]),
    "workers of text": (Jobs, {"workers": "2"}, ["workers", "'2'"]),
    "no workers by key": (Jobs, {"workers_by_key": 0}, ["workers_by_key", "at least 1"]),
    "unknown policy": (Jobs, {"on_error": "retry"}, ["on_error", "'drop' or 'stop'", "'retry'"]),
    "policy of no kind": (Jobs, {"on_decode_error": None}, ["on_decode_error", "Backoff"]),
    "timeout of zero": (Jobs, {"timeout": timedelta(0)}, ["timeout", "positive"]),
    "timeout of a number": (Jobs, {"timeout": 3}, ["timeout", "timedelta", "3"]),
}


@pytest.mark.parametrize("case", ALONE)
def test_wrong_setting_is_refused_and_includes_nothing(case: str) -> None:
    row, settings, pieces = ALONE[case]
    app = service()
    with pytest.raises(DeclarationError) as caught:
        app.include(handler(row, "q"), **settings)
    for piece in ["subscription 'q'", *pieces]:
        assert piece in str(caught.value)
    assert app.subscribers == ()
    app.include(handler(row, "q"))


def cap(number: int, dead: str) -> dict[str, Any]:
    return {"max_attempts": number, "dead_letter": dead}


TOGETHER: dict[str, tuple[list[tuple[str, dict[str, Any]]], list[str]]] = {
    "two on one queue": ([("a", {}), ("a", {})], ["two subscriptions serve", "group 'a'"]),
    "a loop of two": ([("a", cap(1, "b")), ("b", cap(2, "a"))], ["loop", "'a'", "'b'"]),
    "a loop of three": (
        [("a", cap(1, "b")), ("b", cap(2, "c")), ("c", cap(3, "a"))],
        ["loop", "'c'", "end elsewhere"],
    ),
    "a cap that dead letters are past": (
        [("a", cap(3, "b")), ("b", cap(3, "c"))],
        ["'b'", "arrive with 4 attempts", "greater than 3"],
    ),
    "the same, the other way round": (
        [("b", cap(2, "c")), ("a", cap(3, "b"))],
        ["'b'", "arrive with 4 attempts"],
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_subscriptions_that_contradict_each_other_are_refused(case: str) -> None:
    given, pieces = TOGETHER[case]
    app = service()
    *good, (name, settings) = given
    for good_name, good_settings in good:
        app.include(handler(Jobs, good_name), **good_settings)
    with pytest.raises(DeclarationError) as caught:
        app.include(handler(Jobs, name), **settings)
    for piece in pieces:
        assert piece in str(caught.value)
    assert len(app.subscribers) == len(good)


def test_two_names_of_a_table_without_groups_are_one_queue() -> None:
    app = service()
    app.include(handler(Plain, "a"))
    with pytest.raises(DeclarationError, match="two subscriptions serve table 'plain'"):
        app.include(handler(Plain, "b"))


def test_what_was_not_decorated_is_refused() -> None:
    async def handle(message: bytes) -> None: ...

    with pytest.raises(DeclarationError, match="decorated by @subscriber"):
        service().include(handle)  # type: ignore[call-overload]


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "broker over nothing": (lambda: Broker(None), "a Database or a URL"),  # type: ignore[arg-type]
    "lease of a number": (lambda: Broker("sqlite:///x.db", lease=30), "lease"),  # type: ignore[arg-type]
    "lease of zero": (lambda: Broker("sqlite:///x.db", lease=timedelta(0)), "lease"),
    "no poll": (lambda: Broker("sqlite:///x.db", poll_interval=timedelta(0)), "poll_interval"),
    "service over a database": (lambda: Service("s", "sqlite:///x.db"), "a Broker"),  # type: ignore[arg-type]
    "service without a name": (lambda: Service("", Broker("sqlite:///x.db")), "name"),
    "drain of a number": (
        lambda: Service("s", Broker("sqlite:///x.db"), drain_timeout=3),  # type: ignore[arg-type]
        "drain_timeout",
    ),
    "shrinking back-off": (lambda: Backoff.exponential(factor=0.5), "factor"),
    "jitter beyond one": (lambda: Backoff.fixed(timedelta(1), jitter=2), "jitter"),
    "star in the middle": (lambda: Broker("sqlite:///x.db").route("a*b", Jobs), "only at the end"),
    "empty route": (lambda: Broker("sqlite:///x.db").route("", Jobs), "name or a prefix"),
    "unknown scheme": (lambda: Broker("oracle://x"), "oracle"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_wrong_settings_elsewhere(case: str) -> None:
    make, piece = OTHERS[case]
    with pytest.raises(Exception, match=piece) as caught:
        make()
    assert type(caught.value).__name__ in ("DeclarationError", "DialectError")


def test_no_case_is_lost() -> None:
    assert (len(ALONE), len(TOGETHER), len(OTHERS)) == (18, 5, 12)
