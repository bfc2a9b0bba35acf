"""Which async tests are ours, and how they look to pytest: like sync ones.

A hook that only calls async tests (`pytest_pyfunc_call`) loses to the automatic modes of other
plugins. A test that is not async when they look at it does not.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import pytest

from inboxkit_testing._plugin.fixtures import is_async
from inboxkit_testing._plugin.options import Options
from inboxkit_testing._plugin.plan import CLOCKS, OPENED, SHARED, Plan, current_plan

__all__ = ["choose_parameters", "is_ours", "make_items", "plan_for"]

_NAMES = {*CLOCKS, "inbox_app", "inbox_backend", "inbox_database", "inbox_world"}
_OURS = "_inbox_test"


def make_items(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Function] | None:
    """The items of an async test of ours; None: it is something else, or pytest makes them."""
    function = getattr(obj, "__func__", obj) if isinstance(obj, staticmethod) else obj
    if not isinstance(function, types.FunctionType):
        return None
    given = getattr(function, "hypothesis", None)
    inner: Any = function if given is None else getattr(given, "inner_test", None)
    is_known = hasattr(inner, _OURS)
    if not (is_known or inspect.iscoroutinefunction(inner)):
        return None
    if not collector.istestfunction(obj, name):
        return None
    definition: pytest.Function = pytest.Function.from_parent(
        collector, name=name, callobj=function
    )
    if not is_known and not _is_ours(definition):
        return None
    if given is None:
        return _items(collector, name, _synchronous(function))
    if not is_known:
        given.inner_test = _synchronous(inner)
        pytest.mark.usefixtures("inbox_backend")(function)
        _relax_hypothesis(function, definition)
    return None


def is_ours(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Whether it is an async test of ours."""
    return isinstance(item, pytest.Function) and (_is_given_ours(item) or hasattr(item.obj, _OURS))


def plan_for(item: pytest.Function, seed: int | None) -> Plan:
    """How to run an item of ours."""
    return Plan(item, is_given=_is_given_ours(item), seed=seed)


def _is_given_ours(item: pytest.Function) -> bool:
    given = getattr(item.obj, "hypothesis", None)
    return given is not None and hasattr(getattr(given, "inner_test", None), _OURS)


def choose_parameters(metafunc: pytest.Metafunc, options: Options) -> None:
    """Run a test once for each database and each backend that were chosen."""
    if _is_open(metafunc, "inbox_db"):
        metafunc.parametrize("inbox_db", options.databases)
    if _is_open(metafunc, "inbox_backend"):
        if "anyio_backend" in metafunc.fixturenames and not _is_given(metafunc, "anyio_backend"):
            # As a pair, or the test would also run with one loop named in each.
            pairs = [(name, name) for name in options.backends]
            metafunc.parametrize("anyio_backend,inbox_backend", pairs, ids=options.backends)
        else:
            metafunc.parametrize("inbox_backend", options.backends)


def _is_ours(definition: pytest.Function) -> bool:
    return bool(_NAMES.intersection(definition.fixturenames)) or (
        definition.get_closest_marker("inbox") is not None
    )


def _items(
    collector: pytest.Module | pytest.Class, name: str, wrapper: Callable[..., None]
) -> list[pytest.Function]:
    items: list[pytest.Function] = list(collector._genfunctions(name, wrapper))
    for item in items:
        # pytest took the function by its name again.
        is_method = item.instance is not None and isinstance(item.obj, types.MethodType)
        item.obj = wrapper.__get__(item.instance) if is_method else wrapper
    return items


def _synchronous(test: Callable[..., Any]) -> Callable[..., None]:
    """A sync function that runs `test` in a loop, and shows pytest the same arguments and marks."""

    @functools.wraps(test)
    def inbox_test(*args: object, **kwargs: object) -> None:
        __tracebackhide__ = True
        current_plan().run(test, args, kwargs)

    del inbox_test.__wrapped__  # others would look through it
    attributes: dict[str, object] = {
        _OURS: True,
        "__signature__": _signature(test),
        "place_as": test,  # where pytest says that the test is
    }
    for attribute, value in attributes.items():
        setattr(inbox_test, attribute, value)
    pytest.mark.usefixtures("inbox_backend")(inbox_test)
    return inbox_test


def _signature(test: Callable[..., Any]) -> inspect.Signature:
    """The arguments that are fixtures: without those that `mock.patch` will pass."""
    signature = inspect.signature(test)
    patchings = getattr(test, "patchings", ())
    if not patchings:
        return signature
    from unittest import mock  # noqa: PLC0415 - imports asyncio; the test has done so already

    patched = sum(
        not patching.attribute_name and patching.new is mock.DEFAULT for patching in patchings
    )
    parameters = list(signature.parameters.values())
    first = 1 if parameters[0].name == "self" else 0
    return signature.replace(parameters=parameters[:first] + parameters[first + patched :])


def _is_open(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether we choose the values: the test uses the fixture, as we define it, without its own values."""
    if name not in metafunc.fixturenames or _is_given(metafunc, name):
        return False
    definitions = _definitions(metafunc.definition).get(name, ())
    return all(each.func.__module__ == "inboxkit_testing.pytest_plugin" for each in definitions)


def _is_given(metafunc: pytest.Metafunc, name: str) -> bool:
    for marker in metafunc.definition.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", ())
        listed = names.split(",") if isinstance(names, str) else names
        if name in [each.strip() for each in listed]:
            return True
    return False


def _definitions(definition: pytest.Function) -> Mapping[str, Sequence[Any]]:
    definitions: Mapping[str, Sequence[Any]] = definition._fixtureinfo.name2fixturedefs
    return definitions


def _relax_hypothesis(function: types.FunctionType, definition: pytest.Function) -> None:
    """Turn off what does not fit tests of which each example is a run of its own.

    The health check warns of any fixture of the scope "function"; ours are made anew for each
    example, so the plan warns of those that are not. The default deadline measures real time, mostly
    of opening loops and databases; one that the test sets stays.
    """
    from hypothesis import HealthCheck, settings  # noqa: PLC0415 - the test uses it already

    attribute = "_hypothesis_internal_use_settings"
    current: settings = getattr(function, attribute, None) or settings.default or settings()
    default = settings.default or settings()
    checks = set(current.suppress_health_check)
    if HealthCheck.function_scoped_fixture not in checks:
        definitions = _definitions(definition)
        shared = [
            name for name in inspect.signature(function).parameters if _is_shared(name, definitions)
        ]
        setattr(function, SHARED, tuple(shared))
        checks.add(HealthCheck.function_scoped_fixture)
    deadline = None if current.deadline == default.deadline else current.deadline
    relaxed = settings(current, deadline=deadline, suppress_health_check=tuple(checks))
    setattr(function, attribute, relaxed)


def _is_shared(name: str, definitions: Mapping[str, Sequence[Any]]) -> bool:
    """Whether all examples of a test get one value of a fixture that should be the test's own."""
    if name not in definitions or name in ("inbox_db", "inbox_backend"):
        return False
    return definitions[name][-1].scope == "function" and not _is_made_anew(name, definitions)


def _is_made_anew(
    name: str, definitions: Mapping[str, Sequence[Any]], above: frozenset[str] = frozenset()
) -> bool:
    """Whether the run makes the fixture: it needs the loop, or what it asks for does."""
    if name in CLOCKS:
        return True
    return any(
        is_async(each.func)
        or hasattr(each.func, OPENED)
        or any(
            _is_made_anew(argument, definitions, above | {name})
            for argument in each.argnames
            if argument not in above | {name}
        )
        for each in definitions.get(name, ())
    )
