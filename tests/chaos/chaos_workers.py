"""Worker processes that are started, killed and stopped."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Kill", "Workers"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kill:
    """A worker that was killed, and when, in seconds since 1970."""

    worker: int
    at: float


@dataclass
class Workers:
    """Processes that run ``inboxkit run MODULE --url URL``, by turns on asyncio and on trio.

    Args:
        url: Their database.
        folder: Where their logs go.
        variables: What the module reads of its environment.
        module: The module with the service.
        backends: The event loops that take turns.
    """

    url: str
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    module: str = "chaos_jobs"
    backends: tuple[str, ...] = ("asyncio", "trio")

    def __post_init__(self) -> None:
        self.kills: list[Kill] = []
        self._statuses: dict[int, int] = {}
        self._running: list[int] = []
        self._turns = itertools.cycle(self.backends)
        path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
        self._forks = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("chaos_forking.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, **self.variables},
        )

    @property
    def running(self) -> list[int]:
        """Process ids of those that were neither killed nor stopped, the oldest first."""
        return list(self._running)

    def start(self, count: int = 1) -> list[int]:
        """Start so many more, and return their process ids."""
        return [self._start() for _ in range(count)]

    def kill(self, worker: int) -> None:
        """End one as ``kill -9`` does."""
        os.kill(worker, signal.SIGKILL)
        self.kills.append(Kill(worker, time.time()))
        self._running.remove(worker)

    def wait_for_end(self, worker: int) -> None:
        """Until a killed one is gone, with all that it had locked."""
        while worker not in self._statuses:
            time.sleep(0.001)
            self._look()

    def check_alive(self) -> None:
        """No outage ends a worker: raise AssertionError, with its log, if one ended by itself."""
        self._look()
        for worker in self._running:
            if worker in self._statuses:
                raise AssertionError(
                    f"worker {worker} ended by itself, with status {self._statuses[worker]}:\n"
                    + self.log(worker)
                )

    def stop(self, seconds: float = 30.0) -> None:
        """Stop all in order; each must end with status 0."""
        self.check_alive()
        stopped, self._running = self._running, []
        for worker in stopped:
            os.kill(worker, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while missing := [worker for worker in stopped if worker not in self._statuses]:
            assert time.monotonic() < deadline, f"no end: {self.log(missing[0])}"
            time.sleep(0.01)
            self._look()
        for worker in stopped:
            assert self._statuses[worker] == 0, self.log(worker)

    def log(self, worker: int) -> str:
        """The last of what a worker printed and logged."""
        return self._log(worker).read_text()[-6000:]

    def logs(self) -> str:
        """All that all of them logged."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        """End all that still runs."""
        assert self._forks.stdin is not None
        with self._forks:
            self._forks.stdin.close()  # and its workers die with it

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> int:
        arguments = ["run", self.module, "--url", self.url, "--backend", next(self._turns)]
        worker = self._ask({"start": arguments, "logs": str(self.folder)})
        assert isinstance(worker, int)
        self._running.append(worker)
        return worker

    def _log(self, worker: int) -> Path:
        return self.folder / f"worker-{worker}.log"

    def _look(self) -> None:
        ended = self._ask({"ended": True})
        assert isinstance(ended, dict)
        self._statuses.update({int(worker): status for worker, status in ended.items()})

    def _ask(self, question: object) -> object:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.write(json.dumps(question) + "\n")
        self._forks.stdin.flush()
        return json.loads(self._forks.stdout.readline())
