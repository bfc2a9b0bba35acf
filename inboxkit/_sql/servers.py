"""Servers that speak a database's protocol and are another one, as far as that shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inboxkit._core.spec import InboxSpec
from inboxkit.errors import DialectError

from .statement import Reading, Script, Statement, Steps

__all__ = ["check_cockroach", "galera_warning", "is_galera", "read_is_galera"]

_COCKROACH: Final = "cockroachdb"
_WSREP: Final = Statement(
    "server kind", "SHOW VARIABLES WHERE variable_name IN ('wsrep_on', 'wsrep_provider')"
)
"""Of MySQL without Galera's patches no row."""
_TRUE: Final = frozenset({"ON", "1"})


def check_cockroach(version: str, spec: InboxSpec) -> None:
    """Refuse what goes by locks on a server that takes every statement of them and keeps no promise.

    Args:
        version: What it says of itself: ``version()``.
        spec: A table of it.

    Raises:
        DialectError: It is CockroachDB, and the table's form or its FIFO groups need locks.
    """
    if not version.lower().startswith(_COCKROACH) or (spec.form == "lease" and not spec.fifo):
        return
    met = " ".join(version.split(" (", maxsplit=1)[0].split())
    what = f"the {spec.form} form" if spec.form != "lease" else "the guard of FIFO groups"
    raise DialectError(
        f"table {spec.name!r}: the server is {met}, and {what} goes by locks: its advisory locks lock "
        "nothing and its row locks may be dropped, so that two handlers could have one row without an "
        "error; use the lease form without FIFO groups there, or PostgreSQL"
    )


def is_galera(variables: Mapping[str, str]) -> bool:
    """Whether the server is a node of a Galera cluster.

    Args:
        variables: Its ``wsrep_on`` and ``wsrep_provider``, where it has them.
    """
    is_on = variables.get("wsrep_on", "").upper() in _TRUE
    return is_on and variables.get("wsrep_provider", "").lower() not in ("", "none")


def read_is_galera() -> Script[bool]:
    """Ask MariaDB or MySQL whether it is a node of a Galera cluster."""

    def steps(_reading: Reading) -> Steps[bool]:
        answer = yield _WSREP
        return is_galera({str(name).lower(): str(value) for name, value in answer.rows})

    return Script("server kind", steps, "none")


def galera_warning(spec: InboxSpec) -> str | None:
    """What is to be known of a table on a Galera cluster, whose locks are those of one node.

    None: a claim that another node's claim preceded fails at its COMMIT, which is enough.
    """
    what = _goes_by_locks(spec)
    if what is None:
        return None
    harm = "two rows of a group" if spec.form == "lease" else "one row twice"
    return (
        f"the server is a node of a Galera cluster (wsrep_on), and {what} goes by locks, which are those of "
        f"one node: let all workers write to the same node, or handlers may have {harm} at one moment; or "
        "use the lease form without FIFO groups, which needs no lock"
    )


def _goes_by_locks(spec: InboxSpec) -> str | None:
    """What of a table needs locks that all sessions see; None: nothing."""
    if spec.form != "lease":
        return f"the {spec.form} form"
    return "the guard of FIFO groups" if spec.fifo else None
