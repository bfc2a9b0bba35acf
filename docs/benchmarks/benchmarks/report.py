"""The results as Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .cases import SUBJECTS, Case
from .results import Results, Spread
from .targets import Target

__all__ = ["as_json", "as_markdown"]

Facts = Mapping[str, Mapping[str, str]]


def as_markdown(
    facts: Facts, cases: Sequence[Case], targets: Sequence[Target], results: Results, rounds: int
) -> str:
    """Machine, targets, and every figure."""
    lines = [*_facts(facts, rounds), *_targets(targets, results), *_failures(results)]
    for subject in SUBJECTS:
        of_subject = [case for case in cases if case.subject == subject]
        if of_subject:
            lines += _figures(subject, of_subject, results)
    return "\n".join(lines)


def _facts(facts: Facts, rounds: int) -> Iterator[str]:
    for name, values in facts.items():
        yield f"- {name}: " + ", ".join(f"{key} {value}" for key, value in values.items())
    yield f"- rounds: {rounds}; medians, with the least and the greatest in brackets"
    yield ""


def _targets(targets: Sequence[Target], results: Results) -> Iterator[str]:
    if not targets:
        return
    verdicts = [target.verdict(results) for target in targets]
    yield f"## Targets: {verdicts.count('met')} of {len(targets)} met"
    yield ""
    yield from _table(
        ("what", "found", "must", "aim", ""),
        (
            (target.what, _found(target, results), _bound(target, target.must),
             _bound(target, target.aim), verdict if verdict == "met" else f"**{verdict}**")
            for target, verdict in zip(targets, verdicts, strict=True)
        ),
    )  # fmt: skip


def _found(target: Target, results: Results) -> str:
    found = target.found(results)
    return "" if found is None else f"{_shown(found)} {target.unit}".rstrip()


def _bound(target: Target, bound: float | None) -> str:
    if bound is None:
        return ""
    return f"{'≤' if target.less_is_better else '≥'} {bound:g} {target.unit}".rstrip()


def _failures(results: Results) -> Iterator[str]:
    if results.failures:
        yield "## Failed"
        yield ""
        yield from (f"- {case}: {error}" for case, error in results.failures.items())
        yield ""


def _figures(subject: str, cases: Sequence[Case], results: Results) -> Iterator[str]:
    metrics: dict[str, None] = {}
    for case in cases:
        for sample in results.samples.get(case.key, {}).values():
            metrics |= dict.fromkeys(sample)
    yield f"## {subject.capitalize()}"
    yield ""
    yield from _table(
        ("database", "loop", "what", *metrics),
        (
            (case.database, case.backend, case.name, *(_cell(results, case, m) for m in metrics))
            for case in cases
        ),
    )


def _cell(results: Results, case: Case, metric: str) -> str:
    found = results.of(case.key, metric)
    return "" if found is None else _shown(found)


def _shown(found: Spread) -> str:
    if found.least == found.most:
        return _number(found.middle)
    return f"{_number(found.middle)} ({_number(found.least)} to {_number(found.most)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def as_json(
    facts: Facts, cases: Sequence[Case], targets: Sequence[Target], results: Results, rounds: int
) -> dict[str, Any]:
    """All of it, with every sample."""
    return {
        "facts": facts,
        "rounds": rounds,
        "targets": [_target_as_json(target, results) for target in targets],
        "failures": results.failures,
        "cases": [
            {
                "subject": case.subject,
                "database": case.database,
                "backend": case.backend,
                "name": case.name,
                "samples": list(results.samples.get(case.key, {}).values()),
            }
            for case in cases
        ],
    }


def _target_as_json(target: Target, results: Results) -> dict[str, Any]:
    found = target.found(results)
    return {
        "what": target.what,
        "metric": target.metric,
        "is quotient": target.against is not None,
        "less is better": target.less_is_better,
        "found": None if found is None else found.middle,
        "least": None if found is None else found.least,
        "most": None if found is None else found.most,
        "must": target.must,
        "aim": target.aim,
        "verdict": target.verdict(results),
    }
