"""Worker processes that are started, killed and stopped."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
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
        url: Their database; several are given to them by turns.
        folder: Where their logs go.
        variables: What the module reads of its environment.
        module: The module with the service.
        backends: The event loops that take turns.
    """

    url: str | Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    module: str = "chaos_jobs"
    backends: tuple[str, ...] = ("asyncio", "trio")

    def __post_init__(self) -> None:
        self.kills: list[Kill] = []
        self._running: list[int] = []
        self._turns = itertools.cycle(self.backends)
        self._urls = itertools.cycle([self.url] if isinstance(self.url, str) else self.url)
        self._forks = _forks()

    @property
    def running(self) -> list[int]:
        """Process ids of those that were neither killed nor stopped, the oldest first."""
        return list(self._running)

    def start(self, count: int = 1, *, url: str | None = None) -> list[int]:
        """Start so many more, and return their process ids.

        Args:
            count: How many.
            url: Their database, where it is another.
        """
        return [self._start(url) for _ in range(count)]

    def kill(self, worker: int) -> None:
        """End one as ``kill -9`` does."""
        os.kill(worker, signal.SIGKILL)
        self.kills.append(Kill(worker, time.time()))
        self._running.remove(worker)

    def wait_for_end(self, worker: int) -> None:
        """Until a killed one is gone, with all that it had locked."""
        while worker not in self._forks.statuses:
            time.sleep(0.001)
            self._forks.look()

    def tell(self, worker: int, number: int) -> None:
        """Send a signal."""
        os.kill(worker, number)

    def end_of(self, worker: int, seconds: float) -> tuple[int, float]:
        """Wait until one that was told to stop has ended: its exit status, and how many seconds it took."""
        begun = time.monotonic()
        while worker not in self._forks.statuses:
            took = time.monotonic() - begun
            assert took < seconds, f"{worker} runs after {took:.1f} s:\n{self.log(worker)}"
            time.sleep(0.005)
            self._forks.look()
        self._running.remove(worker)
        return self._forks.statuses[worker], time.monotonic() - begun

    def wait_for(self, worker: int, text: str, seconds: float = 30.0) -> None:
        """Until one has logged this."""
        deadline = time.monotonic() + seconds
        while text not in self.whole_log(worker):
            assert time.monotonic() < deadline, f"{text!r} is not in the log:\n{self.log(worker)}"
            self.check_alive()
            time.sleep(0.01)

    def check_alive(self) -> None:
        """No outage ends a worker: raise AssertionError, with its log, if one ended by itself."""
        self._forks.look()
        for worker in self._running:
            if worker in self._forks.statuses:
                raise AssertionError(
                    f"worker {worker} ended by itself, with status {self._forks.statuses[worker]}:\n"
                    + self.log(worker)
                )

    def stop(self, seconds: float = 30.0) -> None:
        """Stop all in order; each must end with status 0."""
        self.check_alive()
        deadline = time.monotonic() + seconds
        while missing := [one for one in self._running if not self._has_started(one)]:
            assert time.monotonic() < deadline, f"no start: {self.log(missing[0])}"
            time.sleep(0.01)  # it has no handler of signals yet
            self.check_alive()
        for worker in self._running:
            os.kill(worker, signal.SIGTERM)
        statuses = self._forks.statuses
        while missing := [worker for worker in self._running if worker not in statuses]:
            assert time.monotonic() < deadline, f"no end: {self.log(missing[0])}"
            time.sleep(0.01)
            self._forks.look()
        for worker in self._running:
            assert statuses[worker] == 0, self.log(worker)
        self._running.clear()

    def log(self, worker: int) -> str:
        """The last of what a worker printed and logged."""
        return self.whole_log(worker)[-6000:]

    def whole_log(self, worker: int) -> str:
        """All that it printed and logged."""
        path = self._log(worker)
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        """All that all of them logged."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        """End all that still runs."""
        self._forks.look()
        for worker in self._running:
            if worker not in self._forks.statuses:
                os.kill(worker, signal.SIGKILL)
        self._running.clear()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, url: str | None) -> int:
        url = url or next(self._urls)
        arguments = ["run", self.module, "--url", url, "--backend", next(self._turns)]
        worker = self._forks.start(arguments, self.folder, self.variables)
        self._running.append(worker)
        return worker

    def _has_started(self, worker: int) -> bool:
        path = self._log(worker)
        return path.exists() and "' started" in path.read_text()

    def _log(self, worker: int) -> Path:
        return self.folder / f"worker-{worker}.log"


class _Forks:
    """The program that forks workers off, and which of them have ended."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
        self.statuses: dict[int, int] = {}
        """By process id; minus the signal's number for one that was killed."""
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("chaos_forking.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        atexit.register(self._close)

    def start(self, arguments: list[str], folder: Path, variables: Mapping[str, str]) -> int:
        """Start ``inboxkit ARGUMENTS``, and return its process id."""
        asked = {"start": arguments, "folder": str(folder), "variables": dict(variables)}
        worker = self._ask(asked)
        assert isinstance(worker, int)
        self.statuses.pop(worker, None)
        return worker

    def look(self) -> None:
        """Note who has ended since the last time."""
        ended = self._ask({"ended": True})
        assert isinstance(ended, dict)
        self.statuses.update({int(worker): status for worker, status in ended.items()})

    def _ask(self, question: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def _close(self) -> None:
        assert self._process.stdin is not None
        with self._process:
            self._process.stdin.close()  # and its workers die with it


@functools.cache
def _forks() -> _Forks:
    """One for all tests of this process: its start is most of a short test's time."""
    return _Forks()
