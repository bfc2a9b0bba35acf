"""Which dead letter, and which queue, a person means."""

from __future__ import annotations

import click

from inboxkit._including import Included
from inboxkit._operating.places import DeadLetter, dead_letters
from inboxkit.service import Service

__all__ = ["destination", "named", "only", "queue_option"]

queue_option = click.option(
    "--queue", metavar="NAME", help="The dead letter's name, or a queue whose dead letter it is."
)


def named(service: Service, name: str) -> list[DeadLetter]:
    """The dead letters that go by a name: mostly one.

    Raises:
        click.UsageError: None does.
    """
    letters = dead_letters(service)
    found = [letter for letter in letters if letter.name == name]
    found = found or [
        letter for letter in letters if any(one.queue.name == name for one in letter.sources)
    ]
    if not found:
        raise click.UsageError(
            f"service {service.name!r} has no dead letter {name!r}, nor a queue of that name that has "
            f"one; it has {_names(letters)}"
        )
    return found


def only(service: Service, name: str | None) -> DeadLetter:
    """The one dead letter that is meant.

    Raises:
        click.UsageError: There are several, or none.
    """
    letters = dead_letters(service) if name is None else named(service, name)
    if not letters:
        raise click.UsageError(
            f"service {service.name!r} has no dead letters: no queue is included with dead_letter"
        )
    if len(letters) > 1:
        raise click.UsageError(
            f"service {service.name!r} has several dead letters; name one by --queue: {_names(letters)}"
        )
    return letters[0]


def _names(letters: list[DeadLetter]) -> str:
    return ", ".join(repr(letter.name) for letter in letters) or "none"


def destination(service: Service, letter: DeadLetter, to: str | None) -> Included:
    """The subscription that a dead letter's rows go back to.

    Args:
        service: Has both.
        letter: Whose rows.
        to: The name of its queue; None: the only one whose dead letter it is.

    Raises:
        click.UsageError: There are several, or rows of this dead letter cannot be the queue's.
    """
    if to is None:
        one, *others = letter.sources
        if others:
            names = ", ".join(repr(one.queue.name) for one in letter.sources)
            raise click.UsageError(
                f"{letter.name!r} is the dead letter of several queues ({names}); say which by --to"
            )
        return one
    found = [one for one in service.included if one.queue.name == to and _takes(letter, one)]
    if len(found) != 1:
        able = [repr(one.queue.name) for one in service.included if _takes(letter, one)]
        raise click.UsageError(
            f"rows of {letter.name!r} cannot go to {to!r}; they can go to {', '.join(able)}"
        )
    return found[0]


def _takes(letter: DeadLetter, one: Included) -> bool:
    if letter.is_table or one.is_every_group:
        return one in letter.sources
    return one.spec.name == letter.spec.name and one.queue.only_group != letter.scope.group
