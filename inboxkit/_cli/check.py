"""``inboxkit check`` and ``inboxkit ddl``: what a service needs of its tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from inboxkit._operating.checking import Finding, check_service
from inboxkit._operating.tables import Made, tables_of
from inboxkit._sql.dialect import get_dialect

from .common import as_json, of_service, on_service
from .loading import load_service
from .showing import echo_json, one_line, plural

__all__ = ["check", "ddl"]


@click.command()
@of_service
@as_json
def check(target: str, url: str | None, is_json: bool) -> None:
    """Look whether a service can start, and what is wrong with its tables.

    Nothing is written, and no start-up hook runs. Exit status 1: there are errors or warnings.
    """
    service = load_service(target, url)
    found = on_service(service, check_service)
    is_ok = all(finding.severity == "note" for finding in found)
    if is_json:
        findings = [
            {"severity": each.severity, "subject": each.subject, "text": each.text}
            for each in found
        ]
        echo_json({"service": service.name, "ok": is_ok, "findings": findings})
    else:
        for finding in found:
            click.echo(_line(finding))
        click.echo(f"{one_line(service.name)}: {_summary(found)}")
    sys.exit(0 if is_ok else 1)


def _line(finding: Finding) -> str:
    text = finding.text.replace("\n", "\n    ")
    return f"{finding.severity}: {one_line(finding.subject)}: {text}"


def _summary(found: Sequence[Finding]) -> str:
    counts = (
        plural(sum(each.severity == severity for each in found), severity)
        for severity in ("error", "warning", "note")
    )
    return ", ".join(counts)


_URLS: Final = {
    "postgres": "postgresql:///",
    "sqlite": "sqlite:///:memory:",
    "mysql": "mysql:///",
    "mariadb": "mariadb:///",
}
"""Of each dialect, what a function is given that nobody gave a URL for."""


@click.command()
@of_service
@click.option(
    "--dialect",
    type=click.Choice(list(_URLS)),
    help="For which database; that of the service where it is not given.",
)
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Write CREATE … IF NOT EXISTS: what is there already is left as it is.",
)
@as_json
def ddl(
    target: str, url: str | None, dialect: str | None, if_not_exists: bool, is_json: bool
) -> None:
    """Print the tables that a service needs, with the indexes that its claims walk.

    Nothing connects, and nothing is made. A function that takes the database's URL needs none where
    --dialect says which it is.
    """
    service = load_service(target, url, fallback=None if dialect is None else _URLS[dialect])
    name = {"mariadb": "mysql", None: service.broker.database.dialect}.get(dialect, dialect)
    assert name is not None
    made = tables_of(service, get_dialect(name), if_missing=if_not_exists)
    if is_json:
        statements = [{"table": one.table, "purpose": one.purpose, "sql": one.text} for one in made]
        echo_json({"dialect": name, "statements": statements})
        return
    for one in made:
        click.echo(_commented(one))


def _commented(one: Made) -> str:
    return f"-- {one_line(one.table)}: {one_line(one.purpose)}\n{one.text};\n"
