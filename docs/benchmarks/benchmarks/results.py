"""Samples of all rounds, their medians, and quotients of samples of the same round."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from .cases import Case
from .measuring import Sample

__all__ = ["Results", "Spread", "measure"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values, and the least and greatest."""

    middle: float
    least: float
    most: float


@dataclass(slots=True)
class Results:
    """What was measured, by the keys of cases; a round in which a case failed has no sample of it."""

    samples: dict[str, dict[int, Sample]] = field(default_factory=dict)
    """By case, then by round."""
    failures: dict[str, str] = field(default_factory=dict)
    """By case: the last error."""

    def add(self, case: str, number: int, sample: Sample) -> None:
        """Note what a round gave."""
        self.samples.setdefault(case, {})[number] = sample

    def of(self, case: str, metric: str) -> Spread | None:
        """One figure over all rounds; None where there is none."""
        rounds = self.samples.get(case, {}).values()
        return _spread([sample[metric] for sample in rounds if metric in sample])

    def quotient(self, case: str, other: str, metric: str) -> Spread | None:
        """A case's figure divided by another one's of the same round, over all rounds."""
        mine, others = self.samples.get(case, {}), self.samples.get(other, {})
        return _spread(
            [
                sample[metric] / others[number][metric]
                for number, sample in mine.items()
                if number in others and metric in sample
            ]
        )


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(median(values), min(values), max(values)) if values else None


def measure(cases: Sequence[Case], rounds: int) -> Results:
    """Run every case once in each round, in turns from the front and from the back.

    A case that fails is told of, and the others go on. Ctrl-C ends it with what there is.
    """
    results = Results()
    try:
        for number in range(rounds):
            for case in cases if number % 2 == 0 else reversed(cases):
                sample = _measured(case, results)
                if sample is not None:
                    results.add(case.key, number, sample)
                    _tell(f"round {number + 1}/{rounds}  {case.key}", sample)
    except KeyboardInterrupt:
        print("stopped; this is what was measured", file=sys.stderr)
    return results


def _measured(case: Case, results: Results) -> Sample | None:
    try:
        return case.measure()
    except Exception as error:  # noqa: BLE001 - the report shows it, and the run's status
        traceback.print_exc()
        results.failures[case.key] = f"{type(error).__name__}: {error}"
        return None


def _tell(what: str, sample: Sample) -> None:
    figures = ", ".join(f"{value:,.4g} {name}" for name, value in sample.items())
    print(f"{what}: {figures}", file=sys.stderr, flush=True)
