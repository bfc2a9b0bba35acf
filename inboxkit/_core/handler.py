"""Handlers as functions: their name, their parameters, and what their annotations say."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from inboxkit.errors import DeclarationError

from .annotations import members, show, try_resolve

__all__ = ["handler_name", "is_async", "may_take", "method_hint", "parameters", "resolve_parameter"]


def handler_name(function: Any) -> str:
    """Return what logs call a handler: the function's name, or its class's."""
    inner = _inner(function)
    return getattr(inner, "__name__", None) or type(inner).__name__


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _code(function: Any) -> Any:
    """Return the function that runs when `function` is called."""
    inner = _inner(function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inspect.unwrap(inner)
    return inspect.unwrap(type(inner).__call__) if callable(inner) else inner


def is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine: an async function, method, partial or ``__call__``."""
    inner = _inner(function)
    if inspect.isclass(inner):
        return False
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - its own, to see whether it is async
    )


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def parameters(label: str, function: Any) -> tuple[inspect.Parameter, inspect.Parameter | None]:
    """Return the parameters that take the message and, if there is one, the delivery.

    Raises:
        DeclarationError: There is none for the message, or one that nobody would fill.
    """
    given = list(inspect.signature(function).parameters.values())
    positional = [parameter for parameter in given if parameter.kind in _POSITIONAL]
    if not positional:
        raise DeclarationError(f"{label} takes no message; give it a first parameter")
    first, *rest = positional
    second = rest[0] if rest and rest[0].kind is not inspect.Parameter.VAR_POSITIONAL else None
    if second is not None and second.default is not second.empty:
        second = second if _mentions_delivery(second.annotation) else None
    passed = (first, second)
    required = [
        parameter.name
        for parameter in given
        if parameter not in passed
        and parameter.default is parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    if required:
        raise DeclarationError(
            f"{label} is called with the message and the delivery alone; give {', '.join(required)} a "
            f"default, or fill it by functools.partial{method_hint(first)}"
        )
    return first, second


def _mentions_delivery(annotation: Any) -> bool:
    return "Delivery" in show(annotation)


def method_hint(first: inspect.Parameter) -> str:
    """What an error says beside, where a method was given without its instance."""
    if first.name not in ("self", "cls"):
        return ""
    return " (for a method, subscribe the bound one: subscriber(queue)(instance.method))"


def resolve_parameter(
    label: str, function: Any, parameter: inspect.Parameter, local: Mapping[str, Any]
) -> Any:
    """Return a parameter's annotation as a type.

    Args:
        label: How messages name the handler.
        function: The handler.
        parameter: One of its parameters.
        local: Names of the scope that it was subscribed in.

    Raises:
        DeclarationError: It is text that cannot be resolved; names it.
    """
    code = _code(function)
    annotation, error = try_resolve(parameter.annotation, getattr(code, "__globals__", {}), local)
    if error is not None:
        raise DeclarationError(
            f"{label}: the type {annotation!r} of parameter {parameter.name!r} cannot be resolved "
            f"({type(error).__name__}: {error}); import it at run time, outside `if TYPE_CHECKING`"
        ) from error
    return annotation


def may_take(annotation: Any, message: Any) -> bool:
    """Whether a parameter may be given this message; true where it cannot be told at run time."""
    return any(_may_be(kind, member) for kind in members(annotation) for member in members(message))


def _may_be(kind: Any, message: Any) -> bool:
    if kind == message or kind in (Any, object) or isinstance(kind, TypeVar):
        return True
    ours, theirs = _origin(kind), _origin(message)
    if not (isinstance(ours, type) and isinstance(theirs, type)):
        return True
    if _is_structural(ours) or _is_structural(theirs):
        return True
    return issubclass(theirs, ours) or (ours is float and theirs is int)


def _origin(kind: Any) -> Any:
    return getattr(kind, "__origin__", None) or kind


def _is_structural(kind: type) -> bool:
    return getattr(kind, "_is_protocol", False) or hasattr(kind, "__total__")
