"""What telemetry asks of a service that does not use it: nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from telemetry_kit import JOBS, SECOND, Job, Work, create, serve

from inboxkit import Database, events
from inboxkit_testing import VirtualClock


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("opentelemetry", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "prometheus")],
)
def test_a_missing_extra_is_named(module: str, library: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import inboxkit\n"
        f"try:\n    import inboxkit.contrib.{module}\n"
        "except inboxkit.MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert f"pip install 'inboxkit[{extra}]'" in done.stdout


def test_the_library_imports_neither() -> None:
    program = (
        "import inboxkit, sys\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


async def test_no_event_of_a_claim_or_an_ack_is_made_that_nobody_hears(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(inbox_database, Job)
    made: list[str] = []

    def spy(kind: type[events.Event]) -> Any:
        def make(**values: Any) -> events.Event:
            made.append(kind.__name__)
            return kind(**values)

        return make

    for name in ("Published", "Claimed", "ClaimEnded", "Renewed", "Finished"):
        monkeypatch.setattr(events, name, spy(getattr(events, name)))
    logger = logging.getLogger("inboxkit")
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        async with serve(inbox_database).running() as handle:
            await serve(inbox_database).broker.publish(JOBS, Work("ack", 20))
            await virtual_clock.advance(30 * SECOND)
        assert made == []
        app = serve(inbox_database)
        app.on_event(lambda event: None)
        async with app.running():
            await app.broker.publish(JOBS, Work("ack", 20))
            await virtual_clock.advance(30 * SECOND)
    finally:
        logger.setLevel(level)
    assert handle.ready.is_set()
    assert set(made) == {"Published", "Claimed", "ClaimEnded", "Renewed", "Finished"}
