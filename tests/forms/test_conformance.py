"""The conformance suite, in every claim form on every database and on the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from benches.cells import MODEL, Cell, places
from benches.hosts import Hosts, run_inline

from inboxkit_testing.conformance import (
    AdvisoryLockConformance,
    Conformance,
    DatabaseBench,
    LeaseConformance,
    ModelBench,
    RowLockConformance,
    RunOnBench,
)


class KeptOpen(Conformance):
    """Runs tests where databases stay open over them; the model in no loop."""

    @pytest.fixture
    def on_bench(  # type: ignore[override]
        self, place: tuple[Cell, str], hosts: Hosts, url_of: Callable[[str], str], table: str
    ) -> RunOnBench:
        cell, backend = place
        if cell.database == MODEL:
            return partial(run_inline, ModelBench(cell.form, table))
        host = hosts.get(url_of(cell.database), backend)
        return partial(host.run, DatabaseBench(host.db, cell.form, table))


@pytest.mark.parametrize("place", places("lease"))
class TestLease(KeptOpen, LeaseConformance):
    pass


@pytest.mark.parametrize("place", places("row lock"))
class TestRowLock(KeptOpen, RowLockConformance):
    pass


@pytest.mark.parametrize("place", places("advisory lock"))
class TestAdvisoryLock(KeptOpen, AdvisoryLockConformance):
    pass
