"""What PostgreSQL does with a statement, with the plan of this execution or the one for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from inboxkit._sql.statement import Statement

__all__ = ["CACHES", "blocks", "explain", "nodes"]

CACHES = ("force_custom_plan", "force_generic_plan")
"""Settings of plan_cache_mode."""


def explain(
    connection: psycopg.Connection[Any], statement: Statement, cache: str, *first: Statement
) -> dict[str, Any]:
    """Run a statement and undo it; returns its plan with what was read.

    EXPLAIN of a text with parameters always plans for their values, so the statement is prepared.

    Args:
        connection: In autocommit.
        statement: May write.
        cache: The plan_cache_mode, unless `first` sets one.
        first: Sent before, in the same transaction.
    """

    def ask(text: str, *values: Any) -> Any:
        return psycopg.RawCursor(connection).execute(text.encode(), values or None)

    with connection.transaction(force_rollback=True):
        ask(f"SET LOCAL plan_cache_mode = {cache}")
        for one in first:
            ask(one.text, *one.parameters)
        ask(f"PREPARE probe AS {statement.text}")
        try:
            answer = ask(
                "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'probe'"
            )
            (types,) = answer.fetchone()
            values = [
                ask(f"SELECT quote_nullable(($1::{kind})::text)", value).fetchone()[0]
                for kind, value in zip(types, statement.parameters, strict=True)
            ]
            given = f"({', '.join(values)})" if values else ""
            found = ask(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE probe{given}")
            plan: dict[str, Any] = found.fetchone()[0][0]["Plan"]
            return plan
        finally:
            ask("DEALLOCATE probe")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's nodes, itself first."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def blocks(plan: dict[str, Any]) -> int:
    """How many blocks were read. What a CTE writes after the last row is in its own node alone."""
    return max(
        node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0) for node in nodes(plan)
    )
