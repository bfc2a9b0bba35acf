"""One run of chaos: a database, workers, a publisher, what is done to them, and the count at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from chaos_counting import Count, count, done, finished_after, left, recoveries, summary, wait_until
from chaos_publishing import Publisher, make_tables
from chaos_sql import Outside
from chaos_workers import Workers

__all__ = ["Run", "Size", "running"]


@dataclass(frozen=True)
class Size:
    """How much of it."""

    jobs: int
    kills: int
    """Workers killed, or sessions ended."""
    outages: int
    """Restarts of a server."""
    lease: float
    """Seconds."""
    away: float
    """The longest that a server is away before it is started again, in seconds."""
    workers: int = 2


@dataclass
class Run:
    """What a test does its damage with."""

    form: str
    size: Size
    random: Random
    url: Callable[[], str]
    workers: Workers
    publisher: Publisher
    outages: list[float] = field(default_factory=list)
    """When each outage was over, in seconds since 1970."""
    about: dict[str, Any] = field(default_factory=dict)
    """What the report is to say beside the counts."""

    def publish_part(self, part: int, parts: int) -> None:
        """Let the publisher go on to this part of all jobs."""
        self.publisher.allow(self.size.jobs * part // parts)

    def keep_pace(self, part: int, parts: int) -> None:
        """Publish a part, and go on when most of the parts before it are done.

        So the damage is spread over all of the jobs, and there is work at each moment.
        """
        self.publish_part(part + 2, parts)
        enough = self.size.jobs * (part - 2) // parts * 0.9
        if enough <= 0:
            return
        with Outside(self.url()) as outside:

            def seen() -> bool:
                self.check()
                return int(outside.value("SELECT coalesce(max(id), 0) FROM effects")) >= enough

            wait_until(seen, 120, f"{enough:g} effects")

    def check(self) -> None:
        """Neither a worker nor the publisher has ended by itself."""
        self.workers.check_alive()
        if self.publisher.failure is not None:
            raise self.publisher.failure

    def pause(self, least: float, most: float) -> None:
        """Until a random moment."""
        time.sleep(self.random.uniform(least, most))

    def wait_for_work(self) -> None:
        """Until each worker has done something."""
        wanted = set(self.workers.running)

        def seen() -> bool:
            self.check()
            if self.publisher.allowed < self.size.jobs // 2:
                self.publisher.allow(self.publisher.allowed + 2)  # the first may have had all
            with Outside(self.url()) as outside:
                found = {worker for (worker,) in outside.run("SELECT DISTINCT worker FROM effects")}
            return wanted <= found

        wait_until(seen, 30, f"an effect of each of the workers {sorted(wanted)}")

    def wait_for_more(self, more: int = 1, *, seconds: float = 60) -> None:
        """Until so many jobs more are done; within so many seconds."""
        with Outside(self.url()) as outside:
            enough = min(done(outside) + more, self.size.jobs)
            # All that were published may be done already.
            self.publisher.allow(max(self.publisher.allowed, enough))
            wait_until(lambda: done(outside) >= enough, seconds, f"{enough} jobs done")

    def finish(self, seconds: float) -> dict[str, Any]:
        """Publish the rest, let the workers do it, stop them in order, count and check.

        Args:
            seconds: How long it may take.
        """
        self.publisher.finish(seconds)
        with Outside(self.url()) as outside:

            def empty() -> bool:
                self.workers.check_alive()
                return left(outside) == 0

            wait_until(empty, seconds, "no row is left")
            self.workers.stop()
            counted: Count = count(outside)
            counted.check(self.size.jobs, counts_crashes=self.form != "row lock")
            return {
                "form": self.form,
                **asdict(counted),
                "kills": len(self.workers.kills),
                "outages": len(self.outages),
                "from_kill": summary(recoveries(outside, self.workers.kills)),
                "from_outage": summary(finished_after(outside, self.outages)),
            }


@contextmanager
def running(
    url: str | Callable[[], str],
    form: str,
    size: Size,
    folder: Path,
    *,
    seed: int,
    report: Path | None = None,
    workers_url: str | Sequence[str] | None = None,
    variables: Mapping[str, str] | None = None,
    seconds: float = 0.02,
    about: Mapping[str, Any],
) -> Iterator[Run]:
    """Make the tables, start publisher and workers; at the end let it `finish`, and report.

    Args:
        url: The database; a function where a fail-over changes it.
        form: The claim form.
        size: How much.
        folder: Where logs go.
        seed: Of all that is random here.
        report: A file to which a line of JSON is added; None: none.
        workers_url: What the workers are given, where that is another; several by turns.
        variables: More that the workers' service reads of its environment.
        seconds: The longest that a handler takes.
        about: What the report is to say beside the counts.
    """
    where = url if callable(url) else lambda: url
    make_tables(where(), form)
    settings = {"CHAOS_FORM": form, "CHAOS_LEASE": str(size.lease), **(variables or {})}
    begun = time.monotonic()
    publisher = Publisher(where, form, size.jobs, seed, seconds)
    with Workers(workers_url or where(), folder, settings) as workers:
        run = Run(form, size, Random(seed), where, workers, publisher, about=dict(about))
        publisher.start()
        run.publish_part(1, 10)
        try:
            workers.start(size.workers)
            yield run
            found = run.finish(60 + size.jobs / 20)
        except BaseException:
            publisher.give_up()
            raise
    found |= {**run.about, "seed": seed, "seconds": round(time.monotonic() - begun, 1)}
    print(json.dumps(found))
    if report is not None:
        with report.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
