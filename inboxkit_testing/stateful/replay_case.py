"""A pytest case that makes the same happen again, as a person would write it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inboxkit import InboxQueue
from inboxkit_testing.backends import BackendName

from .literals import Source
from .steps import Call
from .traffic import FromNow, GroupOf

__all__ = ["Names", "replay_case"]

_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Names:
    """How a case gets at what is the user's."""

    made_by: type | None
    """A machine whose methods these are; None: they are functions."""
    service: Callable[..., Any]
    setup: Callable[..., Any] | None
    populate: Callable[..., Any] | None
    check: Callable[..., Any] | None


def replay_case(
    calls: Sequence[Call],
    *,
    names: Names,
    schedule: Sequence[int],
    backend: BackendName,
    dialect: str,
    url: str,
) -> str:
    """Source of a test module with one test.

    Args:
        calls: What was done to the world, in order.
        names: What is the user's.
        schedule: Of the gate.
        backend: The loop on which it failed.
        dialect: Which SQL the database speaks.
        url: Where it was.
    """
    source = Source()
    source.add("inboxkit_testing", "World")
    for name in ("VirtualClock", "StatementGate", "open_test_database", "run"):
        source.add("inboxkit_testing", name)
    service, prepared, check, before = _users(source, names)
    body = [line for call in calls for line in _lines_of(source, call)]
    body.append("world.history.check_all()")
    if check is not None:
        body.append(f"await {check}(world)")
    fixture, opened = _database(source, dialect, url)
    gate = f"StatementGate({list(schedule)!r})" if schedule else "StatementGate()"
    indent = " " * 4
    lines = [
        f"def test_crash_and_resume({fixture}) -> None:",
        f'{indent}"""Found by the crash-and-resume machine."""',
        *(f"{indent}{line}" for line in before),
        f"{indent}clock = VirtualClock(gate={gate})",
        "",
        f"{indent}async def main(url: str) -> None:",
        f"{indent * 2}async with open_test_database(url, clock=clock) as database:",
        *(f"{indent * 3}await {each}(database)" for each in prepared),
        f"{indent * 3}async with World({service}, database) as world:",
        *(f"{indent * 4}{line}" for line in body),
        "",
        *(
            f"{indent}{line}"
            for line in opened(f'run(main, url, backend="{backend}", clock=clock)')
        ),
    ]
    doubts = [f"# Look here: {doubt}." for doubt in dict.fromkeys(source.doubts)]
    return "\n".join([*doubts, *source.lines(), "", "", *lines, ""])


def _users(source: Source, names: Names) -> tuple[str, list[str], str | None, list[str]]:
    """The names of the service, of what prepares a database, of the check; and lines before these."""
    if names.made_by is not None:
        prepared = [
            f"machine.{name}"
            for name, method in (("setup", names.setup), ("populate", names.populate))
            if method is not None
        ]
        check = None if names.check is None else "machine.check"
        return "machine.service", prepared, check, [f"machine = {source.name(names.made_by)}()"]
    prepared = [source.name(each) for each in (names.setup, names.populate) if each is not None]
    check = None if names.check is None else source.name(names.check)
    return source.name(names.service), prepared, check, []


def _database(source: Source, dialect: str, url: str) -> tuple[str, Callable[[str], list[str]]]:
    """The test's arguments, and the lines that open a fresh database around a line."""
    if dialect == "sqlite":
        source.add("pathlib", "Path")
        scheme = url.partition(":")[0]
        opened = f"url = f\"{scheme}:///{{tmp_path / 'inbox.db'}}\""
        return "tmp_path: Path", lambda line: [opened, line]
    kind = url.partition(":")[0].partition("+")[0]
    server = {"mariadb": "mariadb", "mysql": "mysql"}.get(kind, "postgres")
    made = "PostgresServer" if server == "postgres" else "MysqlServer"
    source.add("inboxkit_testing.servers", made)
    opened = f"with inbox_{server}.database() as url:"
    return f"inbox_{server}: {made}", lambda line: [opened, f"    {line}"]


def _lines_of(source: Source, call: Call) -> list[str]:
    if callable(call.name):
        target, args = source.name(call.name), ["world"]
    else:
        target, args = f"world.{call.name}", []
    args += [_argument(source, value) for value in call.args]
    args += [f"{name}={_argument(source, value)}" for name, value in call.kwargs.items()]
    waits = "await " if call.is_async else ""
    line = f"{waits}{target}({', '.join(args)})"
    lines = [line]
    if len(line) > _LONGEST - 16:
        lines = [f"{waits}{target}(", *(f"    {each}," for each in args), ")"]
    if call.raised is None or call.name in ("drain", "calm"):
        return lines
    if not isinstance(call.raised, Exception):
        return lines
    source.add("contextlib", "suppress")
    error = source.name(type(call.raised))
    return [f"with suppress({error}):", *(f"    {each}" for each in lines)]


def _argument(source: Source, value: Any) -> str:
    if isinstance(value, FromNow):
        return f"world.clock.now() + {source.value(value.delay)}"
    if isinstance(value, InboxQueue):
        return source.value(value.name)
    if isinstance(value, GroupOf):
        return f"{_queue(source, value.queue)}.group({source.value(value.group)})"
    if isinstance(value, tuple):
        return f"({', '.join(_argument(source, each) for each in value)})"
    if isinstance(value, dict):
        pairs = (f"{source.value(name)}: {_argument(source, each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return source.value(value)


def _queue(source: Source, queue: InboxQueue[Any, Any]) -> str:
    """The name that some module has for it."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is queue:
                source.add(module.__name__, name)
                return name
    source.doubts.append(f"QUEUE stands for {queue!r}")
    return "QUEUE"
