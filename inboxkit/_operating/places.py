"""The queues and dead letters of a service, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inboxkit._core.spec import InboxSpec
from inboxkit._including import Included
from inboxkit._including_together import left_to_others
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.every_group import Others
from inboxkit._sql.scope import Scope
from inboxkit._sql.table import Table, bind
from inboxkit.database import Database
from inboxkit.errors import SchemaError
from inboxkit.service import Service

__all__ = ["DeadLetter", "dead_letters", "open_dead_letter", "open_table", "scope_of"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where dead rows of one or more subscriptions lie."""

    name: str
    """As the subscriptions name it: a group, a name with ``{group}`` in it, or a table."""
    spec: InboxSpec
    """Its table."""
    scope: Scope
    sources: tuple[Included, ...]
    """Whose it is."""

    @property
    def is_table(self) -> bool:
        """Whether its rows are in a table of their own."""
        return self.scope == Scope()


def scope_of(one: Included, included: Sequence[Included]) -> Scope:
    """Which rows of its table a subscription serves."""
    if not one.is_every_group:
        return Scope(group=one.queue.only_group)
    return Scope(others=Others(tuple(sorted(left_to_others(one, included))), one.dead_shape))


def dead_letters(service: Service) -> list[DeadLetter]:
    """Every dead letter of a service, each once, in the order of the subscriptions."""
    found: dict[tuple[str, Scope], DeadLetter] = {}
    for one in service.included:
        if (letter := _dead_letter(one, service.included)) is None:
            continue
        key = letter.spec.name, letter.scope
        if (known := found.get(key)) is not None:
            letter = replace(known, sources=(*known.sources, one))
        found[key] = letter
    return list(found.values())


def _dead_letter(one: Included, included: Sequence[Included]) -> DeadLetter | None:
    to = one.destination
    if to is None:
        return None
    if to.group is not None:
        return DeadLetter(to.name, one.spec, Scope(group=to.group), (one,))
    if to.shape is not None:
        return DeadLetter(to.name, one.spec, Scope(shape=to.shape), (one,))
    assert to.table is not None
    # A subscription that reads it has its own description, with its own types.
    served = (other.spec for other in included if other.spec.name == to.name)
    spec = next(served, replace(one.spec, table=to.table, schema=to.schema))
    return DeadLetter(to.name, spec, Scope(), (one,))


async def open_table(database: Database, spec: InboxSpec) -> Table:
    """A served table, checked as at start-up.

    Raises:
        SchemaError: It does not fit its description.
    """
    info = await database.describe(spec)
    return bind(get_dialect(database.dialect), spec, info)


async def open_dead_letter(database: Database, letter: DeadLetter) -> Table:
    """The table of a dead letter: a served one, or one with its columns.

    Raises:
        SchemaError: It is missing, or lacks a column.
    """
    if not letter.is_table:
        return await open_table(database, letter.spec)
    dialect, spec = get_dialect(database.dialect), letter.spec
    info = await database.run(dialect.describe(spec))
    missing = [column.name for _role, column in spec.roles() if info.column(column.name) is None]
    if info.kind != "table" or missing:
        what = f"lacks column {missing[0]!r}" if info.kind == "table" else f"is a {info.kind}"
        raise SchemaError(
            f"dead-letter table {spec.name!r} "
            + ("does not exist" if info.kind == "missing" else what)
            + f"; it needs the columns of {letter.sources[0].spec.name!r}: inboxkit ddl prints them",
            table=spec.name,
        )
    return bind(dialect, spec, info)
