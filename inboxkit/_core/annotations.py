"""Annotations read at run time: resolved where they can be, and stripped to the type that counts."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, ForwardRef, NewType, Union, get_args, get_origin

__all__ = ["members", "show", "strip", "try_resolve"]

_NOTHING: Mapping[str, Any] = types.MappingProxyType({})


def try_resolve(
    annotation: Any, namespace: Mapping[str, Any], local: Mapping[str, Any] = _NOTHING
) -> tuple[Any, Exception | None]:
    """Evaluate a string annotation; anything else is returned as it is.

    Args:
        annotation: As it stands on the class or the function.
        namespace: The globals of the module that it was written in.
        local: Names of the scope around it.

    Returns:
        The type and None; or the annotation unchanged and what evaluating it raised.
    """
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation, None
    try:
        return eval(annotation, dict(namespace), dict(local)), None  # noqa: S307 - the program's own text
    except Exception as error:  # noqa: BLE001 - an annotation may raise anything
        return annotation, error


def strip(annotation: Any) -> Any:
    """Return an annotation without `Annotated` and `NewType` around it."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        else:
            return annotation


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the stripped members of a union, or the one stripped type; None is `NoneType`."""
    annotation = strip(annotation)
    if annotation is None:
        return (types.NoneType,)
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(part for member in get_args(annotation) for part in members(member))
    return (annotation,)


def show(annotation: Any) -> str:
    """Return a type as a person would write it."""
    if isinstance(annotation, str):
        return annotation
    if annotation is types.NoneType:
        return "None"
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")
