"""All that can be measured, in the order of a round."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

from inboxkit import Service
from inboxkit.abc import ClaimFormName

from . import claims, enqueue, latency, memory, raw_mysql, raw_postgres, raw_sqlite, starting
from .measuring import Sample
from .on_sqlite import SqlitePlace
from .ours import drain_by_service
from .places import Place

__all__ = ["HAS_PREFETCH", "SUBJECTS", "WORKERS", "Case", "Scale", "Subject", "cases_of", "key"]

Subject: TypeAlias = Literal["throughput", "enqueue", "latency", "claims", "memory", "start"]
SUBJECTS: Final[tuple[Subject, ...]] = get_args(Subject)
WORKERS: Final = (1, 10, 50)
HAS_PREFETCH: Final = "prefetch" in inspect.signature(Service.include).parameters


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done in each case."""

    many: int
    """Jobs of a drain that takes many at once."""
    few: int
    """Jobs of a drain that takes them one by one."""
    bulks: int
    """Calls that write a thousand rows each."""
    published: int
    """Jobs whose latency is measured."""
    claims: int
    """Claims timed in a row."""
    in_memory: int
    """Rows in work at once."""
    shrink: int = 1
    """Tables that are claimed from have so much fewer rows."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    subject: Subject
    database: str
    """A place's name; empty: none is needed."""
    backend: str
    """``"asyncio"``, ``"trio"``, or empty where no loop runs."""
    name: str
    measure: Callable[[], Sample]

    @property
    def key(self) -> str:
        """What no other case is called."""
        return key(self.database, self.backend, self.name)


def key(database: str, backend: str, name: str) -> str:
    """What results call a case."""
    return f"{name} [{', '.join(part for part in (database, backend) if part)}]"


def cases_of(
    places: Sequence[Place], backends: Sequence[str], subjects: Sequence[str], scale: Scale
) -> Iterator[Case]:
    """Every case that was asked for, neighbours being what is compared."""
    if "start" in subjects:
        yield Case("start", "", "", "import inboxkit", starting.importing)
    for place in places:
        for subject in SUBJECTS:
            if subject in subjects:
                for backend in backends:
                    yield from _MAKERS[subject](place, backend, scale)
                if subject == "throughput" and isinstance(place, SqlitePlace):
                    yield from _in_one_thread(place, scale)


def _throughput(place: Place, backend: str, scale: Scale) -> Iterator[Case]:
    for name, measure in _drains(place, backend, scale):
        yield Case("throughput", place.name, backend, name, measure)


_Named: TypeAlias = Iterator[tuple[str, Callable[[], Sample]]]


def _drains(place: Place, backend: str, scale: Scale) -> _Named:
    forms: list[ClaimFormName] = ["lease", "advisory lock"]
    if place.dialect != "sqlite":
        forms.insert(1, "row lock")
    for form in forms:
        for workers in WORKERS:
            jobs = scale.many if form == "lease" and workers > 1 else scale.few
            ours = partial(drain_by_service, place, backend, form, jobs=jobs, workers=workers)
            yield f"{form}, {workers}", ours
            if backend == "asyncio" and place.dialect == "sqlite":
                yield f"{form}, {workers}, thread", partial(ours, driver="thread")
            yield from _by_hand(place, backend, form, workers, scale)
    if place.dialect == "postgres":
        pipelined = partial(raw_postgres.drain_pipelined, place, backend, jobs=scale.many)
        if HAS_PREFETCH:
            ours = partial(drain_by_service, place, backend, "lease", jobs=scale.many, workers=10)
            yield "lease, 10, prefetch 100", partial(ours, prefetch=100)
        yield "raw pipe100, 10", partial(pipelined, workers=10, ahead=100)
    if isinstance(place, SqlitePlace):
        yield from _through_threads(place, backend, scale)


def _by_hand(place: Place, backend: str, form: ClaimFormName, workers: int, scale: Scale) -> _Named:
    """What a service in that form, with so many workers, is compared with."""
    if place.dialect == "postgres":
        if form == "lease" and workers > 1:
            pipelined = partial(raw_postgres.drain_pipelined, place, backend, jobs=scale.many)
            yield f"raw pipe0, {workers}", partial(pipelined, workers=workers)
        one_by_one = partial(raw_postgres.drain_by_workers, place, backend, form, jobs=scale.few)
        yield f"raw {form}, {workers}", partial(one_by_one, workers=workers)
    elif place.dialect == "mysql" and form != "advisory lock":
        one_by_one = partial(raw_mysql.drain_by_workers, place, backend, form, jobs=scale.few)
        yield f"raw {form}, {workers}", partial(one_by_one, workers=workers)


def _through_threads(place: SqlitePlace, backend: str, scale: Scale) -> _Named:
    for batch, jobs in ((1, scale.few), (10, scale.many)):
        hops = partial(raw_sqlite.drain_by_hops, place, backend, jobs=jobs, batch=batch)
        yield f"raw joined hop, batch {batch}", hops
        if backend == "asyncio":
            apart = partial(raw_sqlite.drain_by_aiosqlite, place, jobs=jobs, batch=batch)
            yield f"raw aiosqlite, batch {batch}", apart


def _in_one_thread(place: SqlitePlace, scale: Scale) -> Iterator[Case]:
    for batch, jobs in ((1, scale.few), (10, scale.many)):
        measure = partial(raw_sqlite.drain_in_one_thread, place, jobs=jobs, batch=batch)
        yield Case("throughput", place.name, "", f"raw sqlite3, batch {batch}", measure)


def _enqueue(place: Place, backend: str, scale: Scale) -> Iterator[Case]:
    for name, function in (("publish", enqueue.by_inboxkit), ("raw insert", enqueue.by_driver)):
        measure = partial(function, place, backend, one_by_one=scale.few, bulks=scale.bulks)
        yield Case("enqueue", place.name, backend, name, measure)


def _latency(place: Place, backend: str, scale: Scale) -> Iterator[Case]:
    wakes: list[latency.Wake] = ["in process", "poll"]
    if place.dialect == "postgres":
        wakes.insert(1, "notify")
        by_hand = partial(latency.by_notify, place, backend, jobs=scale.published)
        yield Case("latency", place.name, backend, "raw notify", by_hand)
    for wake in wakes:
        measure = partial(latency.by_inboxkit, place, backend, wake, jobs=scale.published)
        yield Case("latency", place.name, backend, wake, measure)


def _claims(place: Place, backend: str, scale: Scale) -> Iterator[Case]:
    for number, (name, shape) in enumerate(claims.SHAPES.items(), 1):
        table = f"claims_{number}_{backend}"
        made = claims.Claims(table, shape.shrunk(scale.shrink), backend, claims=scale.claims)
        yield Case("claims", place.name, backend, name, partial(made.measure, place))
    if place.dialect == "postgres":
        by_hand = partial(claims.raw_claims, place, backend, claims=scale.claims)
        yield Case("claims", place.name, backend, "raw claim, 1 k rows", by_hand)


def _memory(place: Place, backend: str, scale: Scale) -> Iterator[Case]:
    measure = partial(memory.in_own_process, place, backend, rows=scale.in_memory)
    yield Case("memory", place.name, backend, f"{scale.in_memory:,} rows in work", measure)


def _start(place: Place, backend: str, scale: Scale) -> Iterator[Case]:
    measure = partial(starting.until_ready, place, backend)
    yield Case("start", place.name, backend, "until ready", measure)


_MAKERS: Final[dict[Subject, Callable[[Place, str, Scale], Iterator[Case]]]] = {
    "throughput": _throughput,
    "enqueue": _enqueue,
    "latency": _latency,
    "claims": _claims,
    "memory": _memory,
    "start": _start,
}
