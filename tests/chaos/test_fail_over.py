"""A Postgres primary that becomes read-only, and a replica that takes its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chaos_run import Size, running
from chaos_servers import own_pair

CELLS = [
    pytest.param(form, how, id=f"{form}-{how}", marks=() if small else pytest.mark.whole_chaos)
    for form, how, small in (
        ("lease", "the old primary dies", False),
        ("row lock", "the old primary dies", False),
        ("advisory lock", "the old primary dies", False),
        ("lease", "the old primary stays read-only", True),
        ("row lock", "the old primary stays read-only", False),
        ("advisory lock", "the old primary stays read-only", False),
    )
]


@pytest.mark.parametrize(("form", "how"), CELLS)
def test_a_service_follows_a_fail_over(
    form: str, how: str, size: Size, seed: int, report: Path | None, tmp_path: Path
) -> None:
    size = replace(size, jobs=min(size.jobs, 2_000))
    about = {"kind": f"fail-over: {how}", "database": "postgres"}
    with (
        own_pair() as pair,
        running(
            lambda: pair.primary.url,
            form,
            size,
            tmp_path,
            seed=seed,
            report=report,
            workers_url=pair.both,
            about=about,
        ) as run,
    ):
        run.wait_for_work()
        run.publish_part(1, 2)
        run.pause(0.1, 0.4)
        if how == "the old primary dies":
            pair.old.stop("crash")
        else:
            pair.make_read_only()
            run.pause(0.1, 0.4)
        run.outages.append(pair.promote())
        run.wait_for_more()
