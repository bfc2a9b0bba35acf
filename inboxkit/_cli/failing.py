"""How commands fail: one line that says what to do, no traceback, no secret, and a status."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from inboxkit.errors import InboxkitError

__all__ = ["Failure", "describe", "failing_well", "users_code", "without_secrets"]

P = ParamSpec("P")
T = TypeVar("T")


class Failure(click.ClickException):
    """The work could not be done: exit status 1. What was asked for wrongly is click's UsageError, 2."""

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's own parameter
        """Say it on stderr."""
        click.echo(f"inboxkit: {without_secrets(self.message)}", err=True)


def without_secrets(text: str) -> str:
    """A text without the passwords of URLs in it."""
    text = re.sub(r"(://[^:/?#@\s]*):[^@/\s]*@", r"\1:***@", text)
    return re.sub(r"([?&](?:password|passwd|sslpassword)=)[^&#\s'\"]*", r"\1***", text)


def describe(error: BaseException) -> str:
    """An error that is not inboxkit's, with the place in the user's code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    here = Path(__file__).parents[1]
    users = [
        frame
        for frame in frames
        if here not in Path(frame.filename).parents and not frame.filename.startswith("<frozen")
    ]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return text  # it names its line
    return f"{text} ({users[-1].filename}, line {users[-1].lineno})" if users else text


@contextmanager
def users_code(doing: str) -> Iterator[None]:
    """Run code of the user's: what it raises ends the command in one line.

    Args:
        doing: What is being done, for the message.
    """
    try:
        yield
    except InboxkitError as error:
        raise Failure(f"{doing}: {error}") from error
    except click.ClickException:
        raise
    except SystemExit as error:
        raise Failure(f"{doing} asked to exit ({error.code!r}); guard it by __name__") from error
    except Exception as error:
        raise Failure(f"{doing} failed: {describe(error)}") from error


def failing_well(command: Callable[P, T]) -> Callable[P, T]:
    """Say inboxkit's own errors in one line."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except InboxkitError as error:
            raise Failure(str(error)) from error

    return run
