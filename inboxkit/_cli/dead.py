"""``inboxkit dead list`` and ``inboxkit dead show``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from inboxkit._core.spec import Role
from inboxkit._operating.dead_rows import DeadRow, parse_id, read_dead
from inboxkit._operating.places import DeadLetter, dead_letters, open_dead_letter
from inboxkit.errors import DecodeError
from inboxkit.service import Service

from .common import as_json, of_service, on_service
from .dead_writing import purge, requeue
from .failing import Failure
from .loading import load_service
from .naming import named, queue_option
from .showing import columns, cut, echo_json, one_line

__all__ = ["dead"]

_HEADS = ("id", "dead letter", "group", "attempt", "due", "")


@click.group()
def dead() -> None:
    """Dead letters: rows whose attempts are spent."""


dead.add_command(requeue)
dead.add_command(purge)


@dead.command("list")
@of_service
@queue_option
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@as_json
def list_(target: str, url: str | None, queue: str | None, limit: int, is_json: bool) -> None:
    """List dead letters in the order of their ids, without their payloads."""
    service = load_service(target, url)
    letters = dead_letters(service) if queue is None else named(service, queue)
    found = on_service(service, lambda service: _read(service, letters, limit=limit + 1))
    rows, is_more = found[:limit], len(found) > limit
    if is_json:
        echo_json({"dead": [_document(row) for row in rows], "more": is_more})
        return
    if not rows:
        click.echo("no dead letters")
        return
    click.echo("\n".join(columns(_HEADS, [_row(row) for row in rows])))
    if is_more:
        click.echo(f"… and more; --limit {2 * limit} shows them")


async def _read(
    service: Service, letters: Sequence[DeadLetter], *, limit: int, id: str | None = None
) -> list[DeadRow]:
    database = service.broker.database
    rows: list[DeadRow] = []
    for letter in letters:
        table = await open_dead_letter(database, letter)
        try:
            ids = () if id is None else (parse_id(table, id),)
        except ValueError as error:
            if len(letters) > 1:
                continue
            raise click.UsageError(str(error)) from None
        found = await read_dead(database, table, letter, limit=limit - len(rows), ids=ids)
        # The database may take other texts for the same.
        rows += [row for row in found if id is None or table.id.encode(row.id) in ids]
        if len(rows) >= limit:
            break
    return rows


def _document(row: DeadRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "dead_letter": row.letter.name,
        "table": row.letter.spec.name,
        "group": row.role(Role.GROUP),
        "attempt": row.role(Role.ATTEMPT),
        "due": row.role(Role.RETRY_AFTER),
        "in_work": row.in_work,
    }


def _row(row: DeadRow) -> list[str]:
    due = row.role(Role.RETRY_AFTER)
    group, attempt = row.role(Role.GROUP), row.role(Role.ATTEMPT)
    return [
        one_line(row.id),
        one_line(row.letter.name),
        "-" if group is None else one_line(group),
        "-" if attempt is None else one_line(attempt),
        due.isoformat(sep=" ", timespec="seconds") if isinstance(due, datetime) else "-",
        "in work" if row.in_work else "",
    ]


@dead.command()
@of_service
@click.argument("id")
@queue_option
@as_json
def show(target: str, url: str | None, id: str, queue: str | None, is_json: bool) -> None:
    """Show one dead letter with all that its row holds: payload, headers, the service's own columns, and
    why it cannot be read where it cannot."""
    service = load_service(target, url)
    letters = dead_letters(service) if queue is None else named(service, queue)
    rows = on_service(service, lambda service: _read(service, letters, limit=2, id=id))
    if not rows:
        raise Failure(f"no dead letter has the id {id!r}")
    if len(rows) > 1:
        names = " and ".join(repr(row.letter.name) for row in rows)
        raise click.UsageError(f"dead letters of {names} have the id {id!r}; name one by --queue")
    if is_json:
        echo_json(_whole(rows[0]))
    else:
        click.echo("\n".join(_told(rows[0])))


def _whole(row: DeadRow) -> dict[str, Any]:
    payload = row.role(Role.PAYLOAD)
    if isinstance(payload, bytes):
        payload = _text(payload)
    return {
        **_document(row),
        "headers": row.role(Role.HEADERS),
        "payload": payload,
        "error": row.trouble,
        "columns": {
            name: value for name, value in row.values.items() if name not in _told_apart(row)
        },
    }


def _told(row: DeadRow) -> list[str]:
    lines = [
        f"id: {one_line(row.id)}",
        f"dead letter: {one_line(row.letter.name)} (table {one_line(row.letter.spec.name)})",
    ]
    if row.in_work:
        lines.append("in work: a handler has it")
    apart = _told_apart(row)
    for name, value in row.values.items():
        if name not in apart:
            lines.append(f"{one_line(name)}: {_shown(value)}")
    headers = row.role(Role.HEADERS)
    if isinstance(headers, dict):
        lines.append("headers:")
        lines += [f"    {one_line(name)}: {one_line(value)}" for name, value in headers.items()]
    if (trouble := row.trouble) is not None:
        lines.append(f"error: {cut(trouble)}")
    if row.letter.spec.payload is not None:
        lines += ["payload:", _shown(row.role(Role.PAYLOAD))]
    return lines


def _told_apart(row: DeadRow) -> set[str]:
    apart = (Role.ID, Role.HEADERS, Role.PAYLOAD)
    return {column.name for role, column in row.letter.spec.roles() if role in apart}


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        value = _text(value)
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, bytes):
        return cut(repr(value))
    return f"cannot be read: {value}" if isinstance(value, DecodeError) else one_line(value)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
