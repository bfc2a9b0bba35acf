"""`Service.include`: what contradicts itself is refused before anything connects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from runtime_kit import (
    BARE,
    DEAD,
    FIFO,
    JOBS,
    KEYED,
    PLAIN,
    DeadPlain,
    Fifo,
    Handler,
    Job,
    Work,
)

from inboxkit import (
    Backoff,
    Broker,
    DeclarationError,
    Inbox,
    InboxQueue,
    Service,
    role,
    subscriber,
)


class Elsewhere(Job, table="elsewhere_jobs"):
    """Another table with groups."""


class Schemed(Job, table="jobs", schema="other"):
    """The same name in a schema."""


class Locked(Inbox, table="locked_jobs"):
    """Held by row locks."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Advised(Inbox, table="advised_jobs", advisory_lock="advised-{id}"):
    """Held by advisory locks."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


ROW_LOCK = InboxQueue(Locked, "locked", Work)
ADVISORY = InboxQueue(Advised, "advised", Work)


def service() -> Service:
    return Service("service", Broker("sqlite:///never-opened.db"))


def sub(queue: InboxQueue[Any, Any]) -> Any:
    return subscriber(queue)(Handler())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queue", "settings", "says"),
    [
        (JOBS, {"workers": 0}, "workers must be an int of at least 1"),
        (JOBS, {"workers": -1}, "workers must be"),
        (JOBS, {"workers": True}, "workers must be"),
        (JOBS, {"workers": 1.5}, "workers must be"),
        (KEYED, {"workers_by_key": 0}, "workers_by_key must be"),
        (KEYED, {"workers_by_key": "4"}, "workers_by_key must be"),
        (KEYED, {"workers": 2, "workers_by_key": 2}, "both workers and workers_by_key"),
        (JOBS, {"workers_by_key": 2}, "needs a partition key"),
        (JOBS, {"max_attempts": 5}, "dead_letter is missing"),
        (JOBS, {"dead_letter": "x"}, "max_attempts is missing"),
        (JOBS, {"max_attempts": 0, "dead_letter": "x"}, "max_attempts must be"),
        (JOBS, {"max_attempts": True, "dead_letter": "x"}, "max_attempts must be"),
        (BARE, {"max_attempts": 5, "dead_letter": "x"}, "needs an attempt column"),
        (JOBS, {"max_attempts": 5, "dead_letter": ""}, "must be a name or a queue"),
        (JOBS, {"max_attempts": 5, "dead_letter": 7}, "must be a name or a queue"),
        (JOBS, {"max_attempts": 5, "dead_letter": "jobs"}, "back into itself"),
        (JOBS, {"max_attempts": 5, "dead_letter": JOBS}, "back into itself"),
        (JOBS, {"max_attempts": 5, "dead_letter": PLAIN}, "another group"),
        (
            JOBS,
            {"max_attempts": 5, "dead_letter": InboxQueue(Elsewhere, "dead", Work)},
            "another group",
        ),
        (
            JOBS,
            {"max_attempts": 5, "dead_letter": InboxQueue(Schemed, "dead", Work)},
            "another group",
        ),
        (PLAIN, {"max_attempts": 5, "dead_letter": "plain_jobs"}, "back into table"),
        (PLAIN, {"max_attempts": 5, "dead_letter": PLAIN}, "back into table"),
        (PLAIN, {"max_attempts": 5, "dead_letter": "a.b.c"}, "names a table"),
        (PLAIN, {"max_attempts": 5, "dead_letter": ".b"}, "names a table"),
        (PLAIN, {"max_attempts": 5, "dead_letter": "b."}, "names a table"),
        (JOBS, {"on_error": "retry"}, "on_error must be a Backoff, 'drop' or 'stop'"),
        (JOBS, {"on_error": None}, "on_error must be"),
        (JOBS, {"on_decode_error": timedelta(1)}, "on_decode_error must be"),
        (JOBS, {"timeout": 5}, "timeout must be a positive timedelta"),
        (JOBS, {"timeout": timedelta(0)}, "timeout must be"),
        (JOBS, {"prefetch": -1}, "prefetch must be an int of at least 0, not -1"),
        (JOBS, {"prefetch": 1.5}, "prefetch must be an int"),
        (JOBS, {"prefetch": True}, "prefetch must be an int"),
        (JOBS, {"prefetch": None}, "prefetch must be an int"),
        (FIFO, {"prefetch": 1}, "has FIFO groups"),
        (InboxQueue.every_group(Fifo, Work), {"prefetch": 1}, "has FIFO groups"),
        (KEYED, {"prefetch": 1, "workers_by_key": 2}, "both prefetch and workers_by_key"),
        (ROW_LOCK, {"prefetch": 1}, "prefetch is of the lease form; .* claimed by row lock"),
        (ADVISORY, {"prefetch": 1}, "prefetch is of the lease form; .* claimed by advisory lock"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    queue: InboxQueue[Any, Any], settings: dict[str, Any], says: str
) -> None:
    app = service()
    with pytest.raises(DeclarationError, match=says) as raised:
        app.include(sub(queue), **settings)
    assert repr(queue.name) in str(raised.value)
    assert app.subscribers == ()


@pytest.mark.parametrize(
    "what",
    [Handler(), JOBS, None, lambda work: None],
    ids=["function", "queue", "None", "lambda"],
)
def test_only_a_subscriber_is_included(what: Any) -> None:
    with pytest.raises(DeclarationError, match="@subscriber"):
        service().include(what)


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 50},
        {"max_attempts": 1, "dead_letter": DEAD},
        {"on_error": "drop", "on_decode_error": "stop", "timeout": timedelta(seconds=1)},
        {"on_error": Backoff.immediate()},
    ],
    ids=repr,
)
def test_settings_that_can_be_are_taken(settings: dict[str, Any]) -> None:
    app = service()
    app.include(sub(JOBS), **settings)
    assert len(app.subscribers) == 1


def test_two_subscriptions_of_one_queue_are_refused() -> None:
    app = service()
    app.include(sub(JOBS))
    app.include(sub(DEAD))
    with pytest.raises(DeclarationError, match="two subscriptions serve group 'jobs'"):
        app.include(sub(JOBS))


def test_a_table_without_groups_has_one_subscription() -> None:
    app = service()
    app.include(sub(PLAIN))
    with pytest.raises(DeclarationError, match="two subscriptions serve table 'plain_jobs'"):
        app.include(sub(InboxQueue(PLAIN.row, "another name", Work)))  # type: ignore[type-var]


def group(name: str) -> InboxQueue[Any, Any]:
    return InboxQueue(Job, name, Work)


@pytest.mark.parametrize("length", [2, 3, 5])
def test_dead_letters_do_not_go_round(length: int) -> None:
    app = service()
    for number in range(length - 1):
        app.include(sub(group(f"q{number}")), max_attempts=number + 1, dead_letter=f"q{number + 1}")
    with pytest.raises(DeclarationError, match="form a loop"):
        app.include(sub(group(f"q{length - 1}")), max_attempts=99, dead_letter="q0")


def test_dead_letters_of_tables_do_not_go_round() -> None:
    app = service()
    app.include(sub(PLAIN), max_attempts=1, dead_letter="dead_plain_jobs")
    with pytest.raises(DeclarationError, match="form a loop"):
        app.include(
            sub(InboxQueue(DeadPlain, "dead", Work)), max_attempts=5, dead_letter="plain_jobs"
        )


@pytest.mark.parametrize("order", ["reader last", "reader first"])
def test_the_reader_of_dead_letters_has_a_greater_cap(order: str) -> None:
    """Rows arrive with one attempt more than the first cap counted."""

    def include(app: Service, cap: int) -> None:
        steps = [
            lambda: app.include(sub(JOBS), max_attempts=5, dead_letter="jobs.dead"),
            lambda: app.include(sub(DEAD), max_attempts=cap, dead_letter="buried"),
        ]
        for step in steps if order == "reader last" else reversed(steps):
            step()

    with pytest.raises(DeclarationError, match="must be greater than 5"):
        include(service(), 5)
    include(service(), 6)


def test_a_refused_subscription_leaves_the_service_as_it_was() -> None:
    app = service()
    app.include(sub(JOBS))
    with pytest.raises(DeclarationError):
        app.include(sub(JOBS))
    app.include(sub(FIFO))
    assert [one.queue.name for one in app.subscribers] == ["jobs", "fifo"]


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        (("", Broker("sqlite:///x.db")), {}, "name"),
        ((7, Broker("sqlite:///x.db")), {}, "name"),
        (("s", "sqlite:///x.db"), {}, "Broker"),
        (("s", Broker("sqlite:///x.db")), {"drain_timeout": 5}, "drain_timeout"),
        (("s", Broker("sqlite:///x.db")), {"drain_timeout": timedelta(-1)}, "drain_timeout"),
    ],
)
def test_a_service_with_wrong_settings_is_refused(
    arguments: tuple[Any, ...], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(DeclarationError, match=says):
        Service(*arguments, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"lease": timedelta(0)},
        {"lease": timedelta(-1)},
        {"lease": 30},
        {"poll_interval": timedelta(0)},
        {"poll_interval": 1},
    ],
    ids=repr,
)
def test_a_broker_with_wrong_settings_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Broker("sqlite:///x.db", **settings)


def test_a_broker_takes_a_database_or_a_url() -> None:
    with pytest.raises(DeclarationError, match="Database or a URL"):
        Broker(None)  # type: ignore[arg-type]


def test_a_subclass_is_a_table_of_its_own() -> None:
    assert issubclass(Elsewhere, Inbox)
    app = service()
    app.include(sub(JOBS))
    app.include(sub(InboxQueue(Elsewhere, "jobs", Work)))
