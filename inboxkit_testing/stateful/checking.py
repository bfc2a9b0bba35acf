"""`check_crash_and_resume`: the machine as one call, for a plain test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from hypothesis import settings as Settings  # noqa: N812 - the argument has its name

from inboxkit import Database, Service
from inboxkit.errors import DeclarationError
from inboxkit_testing.backends import BackendName
from inboxkit_testing.databases import ObservedDatabase
from inboxkit_testing.world import World

from .machine import CrashAndResume
from .replay_case import Names
from .running import default_settings, run_machine
from .traffic import Traffic

__all__ = ["check_crash_and_resume"]


def check_crash_and_resume(
    service: Callable[[Database], Service],
    database: Database | str | None = None,
    *,
    traffic: Sequence[Traffic],
    effects: Callable[[World], Awaitable[object]] | None = None,
    setup: Callable[[Database], Awaitable[object]] | None = None,
    populate: Callable[[Database], Awaitable[object]] | None = None,
    keep: Collection[str] = (),
    instances: int = 2,
    backend: BackendName | None = None,
    settings: Settings | None = None,
) -> None:
    """Crash a service in every way that Hypothesis thinks of, and see whether it resumes::

        def test_orders_are_billed_once(inbox_database: Database) -> None:
            check_crash_and_resume(
                service, inbox_database, traffic=[traffic(ORDERS)], effects=each_is_billed_once
            )

    See `CrashAndResume`, which this makes of its arguments.

    Args:
        service: Makes the service over the database that it is given.
        database: A database of the test's own, which is emptied before each example: the fixture
            `inbox_database` of a test that is not async, or a URL. None: those of ``--inbox-db``.
        traffic: What is published.
        effects: As `CrashAndResume.check`.
        setup: Creates tables that the service's `on_startup` does not.
        populate: Writes the rows that each example begins with.
        keep: Tables that are not emptied.
        instances: Most at once, 1 to 4.
        backend: Which loop; None: those of ``--inbox-backend``.
        settings: Of Hypothesis; None: the profile's.

    Raises:
        DeclarationError: An argument cannot be right.
        InvariantViolation: A rule of the queue was broken; with steps, timeline and a pytest case.
        BaseException: What `effects` raised, with the same.
    """
    if effects is not None and not _is_async(effects):
        raise DeclarationError(f"effects must be an async function of the world, not {effects!r}")
    for name, function in (("setup", setup), ("populate", populate)):
        if function is not None and not _is_async(function):
            raise DeclarationError(
                f"{name} must be an async function of the database, not {function!r}"
            )
    known = Names(None, service, setup, populate, effects)

    class Checked(CrashAndResume):
        def service(self, database: Database) -> Service:
            return service(database)

        async def setup(self, database: Database) -> None:
            if setup is not None:
                await setup(database)

        async def populate(self, database: Database) -> None:
            if populate is not None:
                await populate(database)

        async def check(self, world: World) -> None:
            if effects is not None:
                await effects(world)

        def _names(self) -> Names:
            return known

    made: Any = type(
        "CheckCrashAndResume",
        (Checked,),
        {
            "traffic": tuple(traffic),
            "keep": tuple(keep),
            "instances": instances,
            "database": None if database is None else _url(database),
            "backend": backend,
            # Tells one test's failures from another's in Hypothesis's database.
            "_hypothesis_internal_add_digest": _path(service).encode() + _path(effects).encode(),
        },
    )
    run_machine(made, settings or default_settings())


def _is_async(function: object) -> bool:
    from inspect import iscoroutinefunction  # noqa: PLC0415

    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _path(function: object) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')} "


def _url(database: Database | str) -> str:
    if isinstance(database, str):
        return database
    if database.is_open:
        raise DeclarationError(
            f"{database!r} is open: crash and resume opens loops of its own, so call it in a plain test, "
            "not in an async one"
        )
    if isinstance(database, ObservedDatabase):
        return database.url
    url = database._url
    if url is None:
        raise DeclarationError(
            f"{database!r} has no URL that others could open; give the fixture inbox_database, or a URL"
        )
    if url.dialect == "sqlite":
        return f"sqlite+inloop:///{url.location}"
    scheme, _, rest = url.location.partition("://")
    return f"{scheme}+{url.driver}://{rest}" if url.driver else url.location
