"""The machine on every database and both loops, in every claim form; and databases made as good as new."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings

from inboxkit import Database, DeclarationError
from inboxkit_testing import VirtualClock
from inboxkit_testing.stateful.emptying import empty
from inboxkit_testing.stateful.running import run_machine
from testing_kit.resuming_services import Shop, SoundAdvisory, SoundLocked

FEW = settings(max_examples=3, derandomize=True, database=None, phases=[Phase.generate])


@pytest.mark.parametrize(
    ("kind", "loop", "form"),
    [
        ("sqlite-inloop", "trio", Shop),
        ("sqlite", "asyncio", SoundAdvisory),
        ("postgres", "asyncio", Shop),
        ("postgres", "trio", SoundLocked),
        ("mariadb", "trio", Shop),
        ("mariadb", "asyncio", SoundLocked),
        ("mysql", "asyncio", SoundAdvisory),
    ],
)
def test_a_sound_service_passes(kind: str, loop: Any, form: type[Shop]) -> None:
    class Here(form):  # type: ignore[valid-type, misc]
        traffic = form.traffic
        database = kind
        backend = loop

    run_machine(Here, FEW)


SCHEMA = {
    "sqlite": [
        "CREATE TABLE parents (id INTEGER PRIMARY KEY AUTOINCREMENT, name text)",
        "CREATE TABLE children (id INTEGER PRIMARY KEY, parent integer NOT NULL REFERENCES parents)",
        "CREATE TABLE audits (what text)",
        "CREATE TRIGGER noted AFTER DELETE ON parents BEGIN INSERT INTO audits VALUES ('x'); END",
    ],
    "postgres": [
        "CREATE SCHEMA side",
        "CREATE TABLE parents (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",
        "CREATE TABLE side.children (id serial PRIMARY KEY, parent bigint NOT NULL REFERENCES parents)",
        "CREATE VIEW children AS SELECT * FROM side.children",
        "CREATE TABLE audits (what text) PARTITION BY LIST (what)",
        "CREATE TABLE audits_x PARTITION OF audits DEFAULT",
        "CREATE SEQUENCE tickets",
    ],
    "mysql": [
        "CREATE TABLE parents (id bigint AUTO_INCREMENT PRIMARY KEY, name text)",
        """CREATE TABLE children (id bigint AUTO_INCREMENT PRIMARY KEY, parent bigint NOT NULL,
           FOREIGN KEY (parent) REFERENCES parents (id))""",
        "CREATE TABLE audits (what text)",
    ],
}
MORE = [
    'CREATE TABLE "odd ""name"" 💥" (n integer)',
    "CREATE TABLE alembic_version (version_num varchar(32))",
    "CREATE TABLE countries (name varchar(32))",
]


@pytest.mark.parametrize("inbox_db", ["sqlite", "sqlite-inloop", "postgres", "mariadb", "mysql"])
async def test_everything_is_emptied_but_what_is_kept(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    for statement in [*SCHEMA[db.dialect], *MORE]:
        mysql = db.dialect == "mysql"
        await db.execute(
            statement.replace('"odd ""name"" 💥"', "`odd name`") if mysql else statement
        )
    odd = "`odd name`" if db.dialect == "mysql" else '"odd ""name"" 💥"'
    tables = ["parents", "children", "audits", odd]
    for _ in range(2):
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO parents (name) VALUES ('x')")
            await tx.execute("INSERT INTO children (parent) VALUES (1)")
            await tx.execute("INSERT INTO audits VALUES ('x')")
            await tx.execute(f"INSERT INTO {odd} VALUES (1)")
            await tx.execute("INSERT INTO alembic_version VALUES ('v')")
            await tx.execute("INSERT INTO countries VALUES ('Andorra')")
            if db.dialect == "postgres":
                assert await tx.fetch_value("SELECT nextval('tickets')") == 1
        await empty(db, keep=["Countries"])
        counts = [await db.fetch_value(f"SELECT count(*) FROM {table}") for table in tables]
        assert counts == [0, 0, 0, 0]
    assert await db.fetch_value("SELECT count(*) FROM alembic_version") == 2
    assert await db.fetch_value("SELECT count(*) FROM countries") == 2
    await db.execute("INSERT INTO parents (name) VALUES ('x')")
    assert await db.fetch_value("SELECT id FROM parents") == 1


@pytest.mark.parametrize("inbox_db", ["postgres"])
async def test_a_kept_table_that_refers_to_an_emptied_one_is_told(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await inbox_database.execute("CREATE TABLE parents (id integer PRIMARY KEY)")
    await inbox_database.execute("CREATE TABLE children (parent integer REFERENCES parents)")
    with pytest.raises(DeclarationError, match="keep that too"):
        await empty(inbox_database, keep=["public.children"])
