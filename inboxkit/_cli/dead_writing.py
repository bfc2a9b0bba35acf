"""``inboxkit dead requeue`` and ``inboxkit dead purge``."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, Final

import click

from inboxkit._core.spec import Role
from inboxkit._operating.batches import (
    IN_WORK,
    Choice,
    Write,
    Writer,
    count_chosen,
    purging,
    requeuing,
)
from inboxkit._operating.dead_rows import parse_id
from inboxkit._operating.places import DeadLetter, open_dead_letter, open_table
from inboxkit._sql.table import Table
from inboxkit.errors import InboxkitError
from inboxkit.service import Service

from .common import Command, as_json, of_service, on_service
from .failing import without_secrets
from .loading import load_service
from .naming import destination, only, queue_option
from .showing import echo_json, one_line, plural

__all__ = ["purge", "requeue"]

_MOST_COUNTED: Final = 10_000
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line said."""

    queue: str | None
    is_all: bool
    ids: tuple[str, ...]
    older_than: timedelta | None
    limit: int | None
    yes: bool
    is_json: bool

    def check(self) -> None:
        """Refuse to guess.

        Raises:
            click.UsageError: It does not say which rows, or says it twice.
        """
        if sum((self.is_all, bool(self.ids), self.older_than is not None)) != 1:
            raise click.UsageError(
                "say which dead letters: --all, --id (once or more) or --older-than, one of them"
            )

    def choice(self, table: Table) -> Choice:
        """The same for a table.

        Raises:
            click.UsageError: It has no such ids, or no due times.
        """
        if self.older_than is not None and table.find(Role.RETRY_AFTER) is None:
            raise click.UsageError(
                f"table {table.spec.name!r} has no retry_after column, by which --older-than goes; use "
                "--id or --all"
            )
        try:
            ids = tuple(parse_id(table, text) for text in self.ids)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return Choice(ids, self.older_than, self.limit)


def _age(_context: Any, _parameter: Any, value: str | None) -> timedelta | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smhd])", value, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{value!r} is no length of time; write 90s, 15m, 12h or 7d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _wanted(command: Command) -> Command:
    """Give a command the options that say which rows, and whether to ask, as one `Wanted`."""

    @wraps(command)
    def run(
        *,
        queue: str | None,
        is_all: bool,
        ids: tuple[str, ...],
        older_than: timedelta | None,
        limit: int | None,
        yes: bool,
        is_json: bool,
        **rest: Any,
    ) -> Any:
        wanted = Wanted(queue, is_all, ids, older_than, limit, yes, is_json)
        wanted.check()
        return command(wanted=wanted, **rest)

    decorated: Command = run
    for option in (
        as_json,
        click.option("--yes", is_flag=True, help="On a terminal: do not ask."),
        click.option("--limit", type=click.IntRange(min=1), help="At most so many."),
        click.option(
            "--older-than",
            callback=_age,
            metavar="AGE",
            help="Those due so long ago, as 12h or 7d; goes by retry_after.",
        ),
        click.option("--id", "ids", multiple=True, help="This one; may be given again."),
        click.option("--all", "is_all", is_flag=True, help="All of them."),
        queue_option,
    ):
        decorated = option(decorated)
    return decorated


@click.command()
@of_service
@_wanted
@click.option("--to", metavar="QUEUE", help="Which one, where several have this dead letter.")
def requeue(target: str, url: str | None, wanted: Wanted, to: str | None) -> None:
    """Give dead letters back to the queue that they come from, as if they had never been tried.

    Their attempt is 1 again; id, payload, headers, key and priority stay. A due time that has come stays
    too, so that an old row goes before newer ones; one that has not becomes now. Rows in work are left
    alone.
    """
    service = load_service(target, url)
    letter = only(service, wanted.queue)
    one = destination(service, letter, to)
    is_own = letter.scope.shape is not None and one.is_every_group

    async def write(table: Table) -> Write:
        back = await open_table(service.broker.database, one.spec)
        group = None if is_own else one.queue.only_group
        return requeuing(table, letter, target=back, group=group)

    _do("requeue", service, letter, wanted, write, to=one.queue.name)


@click.command()
@of_service
@_wanted
def purge(target: str, url: str | None, wanted: Wanted) -> None:
    """Delete dead letters for good. Rows in work are left alone."""
    service = load_service(target, url)
    letter = only(service, wanted.queue)

    async def write(table: Table) -> Write:
        return purging(table)

    _do("purge", service, letter, wanted, write)


def _do(
    verb: str,
    service: Service,
    letter: DeadLetter,
    wanted: Wanted,
    write: Callable[[Table], Awaitable[Write]],
    *,
    to: str | None = None,
) -> None:
    if _is_terminal() and not wanted.yes:
        _ask(verb, service, letter, wanted)

    async def work(service: Service) -> tuple[int, list[tuple[Any, str]], InboxkitError | None]:
        database = service.broker.database
        table = await open_dead_letter(database, letter)
        choice = wanted.choice(table)
        writer = Writer(database, table, letter, await write(table))
        error = None
        try:
            await writer.run(choice)
        except InboxkitError as met:
            if not writer.count:
                raise
            error = met  # what was done until then is told first
        return writer.count, [(table.id.decode(id), why) for id, why in writer.left.items()], error

    count, left, error = on_service(service, work)
    if wanted.is_json:
        whole = {"action": verb, "dead_letter": letter.name, "count": count, "to": to}
        echo_json({**whole, "left": [{"id": id, "reason": why} for id, why in left]})
    else:
        where = "" if to is None else f" to {to!r}"
        click.echo(f"{verb}d {plural(count, 'dead letter')} of {letter.name!r}{where}")
        for id, why in left:
            click.echo(f"left id {one_line(id)}: {one_line(why)}")
    if error is not None:
        click.echo(f"inboxkit: {without_secrets(str(error))}", err=True)
    is_wrong = any(wanted.ids or why != IN_WORK for _id, why in left)
    sys.exit(1 if error is not None or is_wrong else 0)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _ask(verb: str, service: Service, letter: DeadLetter, wanted: Wanted) -> None:
    async def count(service: Service) -> int:
        database = service.broker.database
        table = await open_dead_letter(database, letter)
        choice = wanted.choice(table)
        return await count_chosen(database, table, letter, choice, most=_MOST_COUNTED + 1)

    found = on_service(service, count)
    shown = f"more than {_MOST_COUNTED} dead letters"
    if found <= _MOST_COUNTED:
        shown = plural(found, "dead letter")
    click.confirm(f"{verb} {shown} of {letter.name!r}?", abort=True, err=True)
