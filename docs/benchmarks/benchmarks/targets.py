"""What the figures have to reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .cases import HAS_PREFETCH, key
from .results import Results, Spread

__all__ = ["Target", "Verdict", "targets_of"]

Verdict = Literal["met", "missed", "not built", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure, or its quotient by that of another case, and its bound."""

    what: str
    case: str
    metric: str
    against: str | None = None
    """The case to divide by; None: the figure itself counts."""
    must: float
    aim: float | None = None
    less_is_better: bool = False
    is_built: bool = True

    @property
    def unit(self) -> str:
        """What the bound is in."""
        if self.against is not None:
            return "x"
        return {"cpu µs": "µs", "ms": "ms", "unflushed ms": "ms", "more MB": "MB"}.get(
            self.metric, ""
        )

    def found(self, results: Results) -> Spread | None:
        """The figure, over all rounds."""
        if self.against is None:
            return results.of(self.case, self.metric)
        return results.quotient(self.case, self.against, self.metric)

    def verdict(self, results: Results) -> Verdict:
        """Whether the median is good enough."""
        if not self.is_built:
            return "not built"
        found = self.found(results)
        if found is None:
            return "not measured"
        is_met = found.middle <= self.must if self.less_is_better else found.middle >= self.must
        return "met" if is_met else "missed"

    def share(self, results: Results) -> float | None:
        """How much of what it must be it is: 1 is just enough, more is better."""
        found = self.found(results)
        if found is None:
            return None
        if self.less_is_better:
            return self.must / found.middle if found.middle else None
        return found.middle / self.must


def targets_of(
    databases: Sequence[str], backends: Sequence[str], subjects: Sequence[str], in_memory: int
) -> Iterator[Target]:
    """The targets of what was asked for."""
    for database in databases:
        for backend in backends:
            if "throughput" in subjects:
                yield from _throughput(database, backend)
            if "enqueue" in subjects and database == "postgres":
                yield _enqueue(database, backend)
            if "latency" in subjects and database == "postgres":
                yield from _latency(database, backend)
            if "claims" in subjects:
                yield from _claims(database, backend)
            if "memory" in subjects:
                yield _memory(database, backend, in_memory)
        if "throughput" in subjects and {"asyncio", "trio"} <= set(backends):
            yield from _trio(database)


def _throughput(database: str, backend: str) -> Iterator[Target]:
    if database == "postgres":
        yield from _on_postgres(backend)
    elif database.startswith("sqlite"):
        yield from _on_sqlite(database, backend)
    else:
        for form in ("row lock", "lease"):
            yield _rate(database, backend, f"{form}, 10", f"raw {form}, 10", must=0.75, aim=1.0)


def _rate(database: str, backend: str, ours: str, raw: str, *, must: float, aim: float) -> Target:
    case, against = key(database, backend, ours), key(database, backend, raw)
    return Target(
        what=f"{case} / {raw}", case=case, against=against, metric="jobs/s", must=must, aim=aim
    )


def _on_postgres(backend: str) -> Iterator[Target]:
    name = "postgres"
    yield _rate(name, backend, "lease, 10", "raw pipe0, 10", must=0.60, aim=0.80)
    yield _rate(name, backend, "lease, 50", "raw pipe0, 50", must=0.60, aim=0.80)
    yield _rate(name, backend, "lease, 1", "raw lease, 1", must=0.75, aim=0.95)
    ahead = key(name, backend, "lease, 10, prefetch 100")
    yield Target(
        what=f"{ahead} / raw pipe100, 10",
        case=ahead,
        against=key(name, backend, "raw pipe100, 10"),
        metric="jobs/s",
        must=0.45,
        aim=0.60,
        is_built=HAS_PREFETCH,
    )
    yield _rate(name, backend, "row lock, 10", "raw row lock, 10", must=0.80, aim=0.95)
    yield _rate(name, backend, "advisory lock, 10", "raw advisory lock, 10", must=0.80, aim=0.95)
    case = key(name, backend, "lease, 10")
    must, aim = {"asyncio": (110.0, 80.0), "trio": (160.0, 120.0)}[backend]
    yield _least(f"Python CPU a job, {case}", case, "cpu µs", must, aim)
    for metric in ("statements", "commits"):
        yield _least(f"{metric} a job, {case}", case, metric, 0.4, 0.2)


def _least(what: str, case: str, metric: str, must: float, aim: float) -> Target:
    return Target(what=what, case=case, metric=metric, must=must, aim=aim, less_is_better=True)


def _on_sqlite(database: str, backend: str) -> Iterator[Target]:
    ones = {"asyncio": ("lease, 1", "lease, 1, thread"), "trio": ("", "lease, 1")}[backend]
    tens = {"asyncio": ("lease, 10", "lease, 10, thread"), "trio": ("lease, 10",)}[backend]
    if ones[0]:
        yield _rate(database, backend, ones[0], "raw aiosqlite, batch 1", must=0.85, aim=1.0)
    yield _rate(database, backend, ones[1], "raw joined hop, batch 1", must=0.70, aim=0.90)
    for ten in tens:
        yield _rate(database, backend, ten, "raw joined hop, batch 10", must=0.40, aim=0.60)
        case, raw = key(database, backend, ten), "raw sqlite3, batch 10"
        yield Target(
            what=f"{case} / {raw}, no event loop",
            case=case,
            against=key(database, "", raw),
            metric="jobs/s",
            must=0.40,
            aim=0.60,
        )


def _trio(database: str) -> Iterator[Target]:
    if database == "postgres":
        trio, asyncio = (key(database, backend, "lease, 10") for backend in ("trio", "asyncio"))
        yield Target(
            what=f"{trio} / on asyncio",
            case=trio,
            against=asyncio,
            metric="jobs/s",
            must=0.60,
            aim=0.90,
        )


def _enqueue(database: str, backend: str) -> Target:
    case = key(database, backend, "publish")
    return Target(
        what=f"insert_rows of 1,000 [{database}, {backend}] / raw unnest",
        case=case,
        against=key(database, backend, "raw insert"),
        metric="bulk/s",
        must=0.50,
        aim=0.70,
    )


def _latency(database: str, backend: str) -> Iterator[Target]:
    for wake, must, aim in (("in process", 1.0, 0.5), ("notify", 1.8, 1.3)):
        case = key(database, backend, wake)
        yield Target(
            what=f"p50 latency, {case} / raw notify",
            case=case,
            against=key(database, backend, "raw notify"),
            metric="p50 ms",
            must=must,
            aim=aim,
            less_is_better=True,
        )


_CLAIMS: Final = (
    (2.0, 1.0, "1 M rows"),
    (2.0, 1.0, "100 k not yet due ahead"),
    (2.0, 1.0, "20 k leased ahead"),
    (2.0, 1.0, "200 k finished before"),
    (2.0, 1.0, "FIFO, 1 group of 100 k, head free"),
    (2.0, 1.0, "FIFO, 1 group of 100 k, head leased"),
    (5.0, 2.0, "every group, 10 k FIFO groups, heads free"),
    (5.0, 2.0, "every group, 10 k FIFO groups, all leased but one"),
)


def _claims(database: str, backend: str) -> Iterator[Target]:
    # What a claim must take was set without the wait for the disk, where a server can leave it out.
    metric = "unflushed ms" if database == "postgres" else "ms"
    for must, aim, name in _CLAIMS:
        case = key(database, backend, name)
        yield _least(f"one claim: {case}", case, metric, must, aim)


def _memory(database: str, backend: str, rows: int) -> Target:
    case = key(database, backend, f"{rows:,} rows in work")
    return _least(f"more memory than at rest: {case}", case, "more MB", 40.0, 15.0)
