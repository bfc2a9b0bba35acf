"""Draw how a row goes from state to state, by letting the claim forms do it.

    python docs/explanation/_states.py            # write the drawings and tables beside this file
    python docs/explanation/_states.py --check    # tell which of them no longer say what the code does

No transition is written here. `transitions` puts a row into each state that can be reached, lets every event
happen to it, and looks at what has become of it; `endings` asks `decide` what each end of a delivery
writes. The states and events have names here, and places on the page.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from math import hypot, inf
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio

from inboxkit import Column, ack, drop, retry, retry_after
from inboxkit._core.backoff import Backoff
from inboxkit._core.settlement import (
    Destination,
    Ending,
    Failed,
    Policy,
    Returned,
    Spent,
    Undecodable,
    decide,
)
from inboxkit.abc import Claimed, ClaimFormName, Settlement, Verb
from inboxkit_testing.conformance import LEASE, Bench, ModelBench

HERE: Final = Path(__file__).parent
FORMS: Final[tuple[ClaimFormName, ...]] = ("lease", "row lock", "advisory lock")
DELAY: Final = timedelta(seconds=5)
CAP: Final = 3


# What may happen to a row.


@dataclass
class Story:
    """One row, and the delivery that has it, if one does."""

    bench: Bench
    id: int
    delivery: Claimed | None = None
    wrote: str = ""
    """What became of the last settlement: "written", "lost" or "gone"."""


Event = Callable[[Story], Awaitable[None]]


async def _claim(story: Story) -> None:
    claimed = await story.bench.claim(cap=CAP)
    story.delivery = claimed[0] if claimed else story.delivery


async def _claim_elsewhere(story: Story) -> None:
    """Another instance; what the first one holds is not known to it."""
    claimed = await story.bench.claim(cap=CAP, by="another")
    story.delivery = claimed[0] if claimed else story.delivery


async def _renew(story: Story) -> None:
    assert story.delivery is not None
    story.bench.advance(seconds=LEASE.total_seconds() / 2)
    story.delivery, renewal = await story.bench.renew(story.delivery)
    story.wrote = "lost" if renewal.lost else "written"


def _settle(settlement: Settlement) -> Event:
    async def event(story: Story) -> None:
        assert story.delivery is not None
        story.wrote = (await story.bench.settle(story.delivery, settlement)).result
        story.delivery = None

    return event


def _release(*, give_back: bool) -> Event:
    async def event(story: Story) -> None:
        assert story.delivery is not None
        story.wrote = (await story.bench.release(story.delivery, give_back=give_back)).result
        story.delivery = None

    return event


async def _crash(story: Story) -> None:
    assert story.delivery is not None
    await story.bench.crash(story.delivery)
    story.delivery = None


async def _wait(story: Story) -> None:
    story.bench.advance(seconds=LEASE.total_seconds() + 1)


IN_HAND: Final[dict[str, Event]] = {
    "renewal": _renew,
    "ack, drop": _settle(Settlement(Verb.FINISH)),
    "retry": _settle(Settlement(Verb.GIVE_BACK)),
    "retry_after": _settle(Settlement(Verb.POSTPONE, DELAY)),
    "back-off in place": _settle(Settlement(Verb.HOLD, DELAY)),
    "dead letter": _settle(Settlement(Verb.MOVE, destination=Destination(group="dead"))),
    "orderly stop": _release(give_back=True),
    "cancelled by itself": _release(give_back=False),
    "crash": _crash,
}
"""What a delivery does, or what befalls it."""
ANY_TIME: Final[dict[str, Event]] = {"claim": _claim, "time passes": _wait}
LAST: Final = ("deleted", "finished", "dead letter")
"""Where the queue is done with a row. Claims pass these over (the suite's own tests say so)."""


# What has become of it.


async def state(story: Story) -> str:
    """The row's state. The last look: it claims the row, if it can be had."""
    bench = story.bench
    rows = dict(await bench.rows("id", "grp"))
    if story.id not in rows:
        return "deleted"
    if rows[story.id] == "dead":
        return "dead letter"
    done = dict(await bench.rows("id", "done"))
    if done[story.id] is not None:
        return "finished"
    rival = await bench.claim(cap=CAP, by="rival")
    if rival:
        return "due" if story.delivery is None else "lease over"
    if story.delivery is not None:
        return "in work"
    due = dict(await bench.rows("id", "due"))[story.id]
    return "waiting" if due is not None and due > bench.now else "leased by nobody"


@dataclass(frozen=True, order=True)
class Transition:
    """One event in one state, and what it led to."""

    before: str
    event: str
    after: str
    attempt: int
    """By how much the stored attempt grew."""


Table = dict[ClaimFormName, list[Transition]]


async def transitions(bench: Bench, *, finished_rows_stay: bool = False) -> list[Transition]:
    """Every state that a row comes to from "due", and what each event makes of it.

    Args:
        bench: An entered bench, without its table.
        finished_rows_stay: The table has the column that finished rows are stamped in.
    """
    more: dict[str, Any] = {"processed_at": Column("done")} if finished_rows_stay else {}
    await bench.create(**more)
    found: list[Transition] = []
    ways: dict[str, list[Event]] = {"due": []}
    for before in (states := list(ways)):
        for name, event in _events(before, bench.form_name):
            way = ways[before]
            after, attempt = await _follow(bench, way, event)
            found.append(Transition(before, name, after, attempt))
            if after not in ways:
                ways[after] = [*way, event]
                states.append(after)
    return found


def _events(before: str, form: str) -> Iterator[tuple[str, Event]]:
    if before in LAST:
        return
    in_hand = before in ("in work", "lease over")
    for name, event in (IN_HAND | ANY_TIME if in_hand else ANY_TIME).items():
        if name == "renewal" and form != "lease":
            continue  # a session needs none
        if in_hand and name == "claim":
            yield "another's claim", _claim_elsewhere
        else:
            yield name, event


async def _follow(bench: Bench, way: list[Event], event: Event) -> tuple[str, int]:
    """A new row goes a known way, then one event more."""
    (id_,) = await bench.insert({})
    story = Story(bench, id_)
    for step in way:
        await step(story)
    before = await _attempt(bench, id_)
    await event(story)
    after = await _attempt(bench, id_)
    found = await state(story)
    await bench.let_go()
    await bench.delete_all()  # type: ignore[attr-defined]
    return found, 0 if before is None or after is None else after - before


async def _attempt(bench: Bench, id: int) -> int | None:
    stored: dict[int, int] = dict(await bench.rows("id", "tries"))
    return stored.get(id)


def on_model() -> Table:
    """Of all three forms, by the rules in memory."""

    async def main() -> Table:
        return {form: await transitions(ModelBench(form)) for form in FORMS}

    return anyio.run(main)


# What ends a delivery.

ENDS: Final[dict[str, Ending]] = {
    "returns, or `ack()`": Returned(ack()),
    "`drop(…)`": Returned(drop("no use")),
    "`retry()`": Returned(retry()),
    "`retry_after(5 s)`": Returned(retry_after(DELAY)),
    "an exception": Failed(),
    "an unreadable payload": Undecodable(),
    "the claim finds the cap passed": Spent(),
}
_STEADY: Final = Backoff.fixed(DELAY)
TABLES: Final[dict[str, Policy]] = {
    "below the cap": Policy(CAP, Destination("dead"), _STEADY, _STEADY, True, True),
    "at the cap": Policy(1, Destination("dead"), _STEADY, _STEADY, True, True),
    "no cap, no `retry_after` column": Policy(None, None, _STEADY, _STEADY, False, True),
    "no cap, FIFO group": Policy(None, None, _STEADY, _STEADY, True, True, True),
}
NAMES: Final = {
    Verb.FINISH: "ack, drop",
    Verb.GIVE_BACK: "retry",
    Verb.POSTPONE: "retry_after",
    Verb.HOLD: "back-off in place",
    Verb.MOVE: "dead letter",
}


def endings() -> str:
    """A table of what each end of a delivery writes, for the first attempt."""
    lines = [
        f"| the delivery ends by | {' | '.join(TABLES)} |",
        "|---" * (len(TABLES) + 1) + "|",
    ]
    for name, ending in ENDS.items():
        cells = []
        for policy in TABLES.values():
            if isinstance(ending, Spent) and policy.destination is None:
                cells.append("-")
                continue
            settlement = decide(ending, attempt=1, policy=policy, random=Random(0))
            assert settlement is not None
            cells.append(NAMES[settlement.verb])
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def table(found: Table) -> str:
    """All transitions that change something, the forms side by side."""
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for form, several in found.items():
        for one in several:
            counted = f", attempt {one.attempt:+d}" if one.attempt else ""
            rows[one.before, one.event][form] = one.after + counted
    lines = [f"| state | event | {' | '.join(FORMS)} |", "|---" * (len(FORMS) + 2) + "|"]
    for (before, event), cells in rows.items():
        if all(cell == before for cell in cells.values()):
            continue
        shown = " | ".join(cells.get(form, "-") for form in FORMS)
        lines.append(f"| {before} | {event} | {shown} |")
    return "\n".join(lines) + "\n"


# The drawing.

BOX: Final = (136, 40)
PLACES: Final = {
    "waiting": (280, 50),
    "due": (90, 190),
    "in work": (500, 190),
    "leased by nobody": (290, 340),
    "lease over": (580, 380),
    "deleted": (790, 120),
    "dead letter": (790, 260),
}
BENDS: Final = {("lease over", "due"): 140}
"""How far an edge is drawn aside, to its left; else 36 where there is one back, or 0."""
_AS_IN_WORK: Final = "settles as in work"
_STYLE: Final = (
    "text{font:13px sans-serif;fill:#1c2733}"
    ".box{fill:#eef3f8;stroke:#48627c;stroke-width:1.5}"
    ".end{fill:#f6f0e4;stroke:#8a6d2f;stroke-width:1.5}"
    ".edge{fill:none;stroke:#48627c;stroke-width:1.3}"
    ".label{font-size:11.5px;fill:#33475b;paint-order:stroke;stroke:#fff;stroke-width:5px}"
)


def drawing(form: ClaimFormName, found: list[Transition]) -> str:
    """One form's states and transitions as SVG."""
    edges, notes = _edges(found)
    shown = {end for edge in edges for end in edge}
    drawn = [_edge(*ends, labels, both=ends[::-1] in edges) for ends, labels in edges.items()]
    parts = [path for path, _ in drawn]
    parts += [_box(name, notes.get(name)) for name in PLACES if name in shown]
    parts += [label for _, label in drawn]
    height = max(PLACES[name][1] for name in shown) + (110 if "lease over" in shown else 60)
    title = f"States of a row in the {form} form"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img" '
        f'aria-label="{title}">\n<title>{title}</title>\n<style>{_STYLE}</style>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="#48627c"/></marker></defs>\n'
        f'<rect width="880" height="{height}" rx="8" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _edges(found: list[Transition]) -> tuple[dict[tuple[str, str], list[str]], dict[str, str]]:
    """Labels by where an edge goes from and to, and notes on boxes.

    What changes nothing is not drawn. What is the same whether the lease is over or not is drawn once.
    """
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    notes: dict[str, str] = {}
    in_work = {(one.event, one.after, one.attempt) for one in found if one.before == "in work"}
    for one in found:
        if one.before == one.after and not one.attempt and one.event != "renewal":
            continue
        if one.before == "lease over" and (one.event, one.after, one.attempt) in in_work:
            notes[one.before] = _AS_IN_WORK
            continue
        counted = f" ({one.attempt:+d})" if one.attempt else ""
        edges[one.before, one.after].append(one.event + counted)
    return edges, notes


def _box(name: str, note: str | None) -> str:
    (x, y), (width, height) = PLACES[name], BOX
    kind = "end" if name in LAST else "box"
    more = "" if note is None else _labels([note], x, y + height / 2 + 12)
    return (
        f'<rect class="{kind}" x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" '
        f'height="{height}" rx="{height // 2 if kind == "end" else 6}"/>'
        f'<text x="{x}" y="{y + 4}" text-anchor="middle">{escape(name)}</text>{more}'
    )


def _edge(before: str, after: str, labels: list[str], *, both: bool) -> tuple[str, str]:
    """A path, and its labels."""
    (x1, y1), (x2, y2) = PLACES[before], PLACES[after]
    lines = [", ".join(labels[n : n + 2]) for n in range(0, len(labels), 2)]
    if before == after:
        top = y1 - BOX[1] / 2
        path = f"M{x1 - 30} {top:g}C{x1 - 60} {top - 50:g} {x1 + 60} {top - 50:g} {x1 + 30} {top:g}"
        return _path(path), _labels(lines, x1, top - 40)
    bend = BENDS.get((before, after), 36 if both else 0)
    length = hypot(x2 - x1, y2 - y1)
    control = (
        (x1 + x2) / 2 + bend * 2 * (y2 - y1) / length,
        (y1 + y2) / 2 - bend * 2 * (x2 - x1) / length,
    )
    start, end = _clip(before, control), _clip(after, control)
    middle = [(s + 2 * c + e) / 4 for s, c, e in zip(start, control, end, strict=True)]
    path = f"M{start[0]:.0f} {start[1]:.0f}Q{control[0]:.0f} {control[1]:.0f} {end[0]:.0f} {end[1]:.0f}"
    return _path(path), _labels(lines, middle[0], middle[1])


def _clip(name: str, towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from a box's middle leaves it."""
    (x, y), (width, height) = PLACES[name], BOX
    dx, dy = towards[0] - x, towards[1] - y
    scale = min(
        width / 2 / abs(dx) if dx else inf,
        height / 2 / abs(dy) if dy else inf,
    )
    return x + dx * scale, y + dy * scale


def _path(path: str) -> str:
    return f'<path class="edge" marker-end="url(#tip)" d="{path}"/>'


def _labels(lines: list[str], x: float, y: float) -> str:
    top = y + 4 - 7 * (len(lines) - 1)
    return "".join(
        f'<text class="label" x="{x:.0f}" y="{top + 14 * n:.0f}" text-anchor="middle">'
        f"{escape(line)}</text>"
        for n, line in enumerate(lines)
    )


# The files.


def files() -> dict[str, str]:
    """What is to stand beside this file, by name."""
    found = on_model()
    made = {f"states-{form.replace(' ', '-')}.svg": drawing(form, found[form]) for form in FORMS}
    return made | {"states.inc": table(found), "endings.inc": endings()}


def outdated() -> list[str]:
    """The files that say something else than the code does."""
    return [
        name
        for name, text in files().items()
        if not (HERE / name).exists() or (HERE / name).read_text() != text
    ]


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if outdated")
    if parser.parse_args().check:
        print("\n".join(names := outdated()), end="\n" if names else "")
        return 1 if names else 0
    for name, text in files().items():
        (HERE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
