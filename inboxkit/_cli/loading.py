"""``module:attribute`` made into a service."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from inboxkit._db.url import parse_url
from inboxkit.errors import DeclarationError
from inboxkit.service import Service

from .failing import users_code, without_secrets

__all__ = ["URL_VARIABLE", "load_service"]

URL_VARIABLE: Final = "INBOXKIT_URL"
_DEFAULTS: Final = ("service", "app")
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def load_service(
    target: str,
    url: str | None,
    *,
    environment: Mapping[str, str] = os.environ,
    fallback: str | None = None,
) -> Service:
    """Import a service, or what makes one.

    Args:
        target: ``module:attribute``, or ``module``: its attribute ``service``, else ``app``.
        url: From the command line; an empty one is one. None: not given.
        environment: Where the URL is looked for next.
        fallback: What a callable that requires a URL is given where there is none; None: that is a
            mistake.

    Returns:
        The service. A callable without a required parameter was called without arguments, or, with
        `url`, with it; one with a required parameter with the command line's URL or the
        environment's.

    Raises:
        click.UsageError: The target names no service, or there is no URL, or no use for one.
        Failure: The user's code failed.
    """
    module_name, _, attribute = target.partition(":")
    if not all(module_name.split(".")) or target.endswith(":"):
        raise click.UsageError(f"{target!r} names no service; write module:attribute, as shop:app")
    module = _import(module_name)
    found, name = _attribute(module, module_name, attribute)
    if isinstance(found, Service):
        if url is not None:
            raise click.UsageError(
                f"{name} is a Service and has its database already; leave --url out, or name a function "
                "that takes the URL and returns the Service"
            )
        return found
    if not callable(found):
        raise click.UsageError(
            f"{name} is of type {type(found).__name__}; expected a Service, or a function that returns one"
        )
    arguments = _arguments(found, name, url, environment, fallback)
    with users_code(f"{name}()"):
        made = found(*arguments)
    if inspect.iscoroutine(made):
        made.close()
        raise click.UsageError(f"{name} is an async function; write def: nothing connects in it")
    if not isinstance(made, Service):
        raise click.UsageError(f"{name}() returned {type(made).__name__}; expected a Service")
    return made


def _import(name: str) -> Any:
    # The folder that one works in, as `python -m` has it.
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with users_code(f"importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if name == missing or name.startswith(f"{missing}."):
                hint = (
                    f"; a module is named without .py: {name[:-3]}"
                    if missing.endswith(".py")
                    else ""
                )
                raise click.UsageError(
                    f"no module is called {missing!r}, neither installed nor in {folder}{hint}"
                ) from None
            raise


def _attribute(module: Any, module_name: str, path: str) -> tuple[Any, str]:
    if not path:
        for name in _DEFAULTS:
            if hasattr(module, name):
                return getattr(module, name), f"{module_name}:{name}"
        raise click.UsageError(
            f"module {module_name!r} has neither {' nor '.join(_DEFAULTS)}; name the attribute, as "
            f"{module_name}:attribute"
        )
    found = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"module {module_name!r} has no attribute {path!r}")
        found = getattr(found, name)
    return found, f"{module_name}:{path}"


def _arguments(
    function: Any,
    name: str,
    url: str | None,
    environment: Mapping[str, str],
    fallback: str | None,
) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    required = [
        one
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(one.kind is one.KEYWORD_ONLY for one in required):
        raise click.UsageError(
            f"{name} takes {', '.join(one.name for one in required)}; expected a function of one "
            "parameter, the database's URL, or of none"
        )
    if not required:
        if url is None:
            return ()
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise click.UsageError(f"{name} takes no URL; leave --url out, or give it a parameter")
        return (_checked(url, "--url"),)
    if url is not None:
        return (_checked(url, "--url"),)
    if URL_VARIABLE in environment:
        return (_checked(environment[URL_VARIABLE], f"${URL_VARIABLE}"),)
    if fallback is not None:
        return (fallback,)
    raise click.UsageError(
        f"{name} takes the database's URL; give --url, or set ${URL_VARIABLE} in the environment"
    )


def _checked(url: str, origin: str) -> str:
    try:
        parse_url(url)
    except DeclarationError as error:
        raise click.UsageError(f"{origin}: {without_secrets(str(error))}") from None
    return url
