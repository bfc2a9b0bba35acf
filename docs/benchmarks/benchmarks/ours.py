"""inboxkit's own service, draining a table."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio

from inboxkit import Broker, Database, InboxQueue, Service, subscriber
from inboxkit.abc import ClaimFormName

from .measuring import Loop, Meter, Sample, drain, in_loop
from .places import Place, remake
from .tables import NAME, ROWS, Job, ddl

__all__ = ["drain_by_service", "url_with"]


def url_with(url: str, driver: str | None) -> str:
    """A database's URL that names a driver; None: the backend's own."""
    return url if driver is None else url.replace("://", f"+{driver}://", 1)


def drain_by_service(
    place: Place,
    backend: str,
    form: ClaimFormName,
    *,
    jobs: int,
    workers: int,
    driver: str | None = None,
    **options: Any,
) -> Sample:
    """Measure a service with one subscription whose handler does nothing.

    Args:
        place: Where.
        backend: ``"asyncio"`` or ``"trio"``.
        form: The claim form.
        jobs: How many.
        workers: Handlers at a time.
        driver: Named in the URL; None: the backend's own.
        options: More for `Service.include`.
    """
    row = ROWS[form]
    remake(place, row.spec.table, ddl(place.dialect, row.spec), jobs)
    url = url_with(place.url, driver)
    loop = _service(url, form, workers=workers, options=options)
    return drain(place, row.spec.table, jobs, in_loop(backend, loop))


def _service(url: str, form: ClaimFormName, *, workers: int, options: dict[str, Any]) -> Loop:
    # The loops by hand have one connection for claims and one for settlements, or one for each
    # worker; a service has one more, which it keeps free for handlers.
    pool_size = 3 if form == "lease" else workers + 1

    async def loop(meter: Meter) -> None:
        last = anyio.Event()
        meter.on_last = last.set

        @subscriber(InboxQueue(ROWS[form], NAME, Job))
        async def handle(job: Job) -> None:
            meter.hit()

        async with Database(url, pool_size=pool_size) as database:
            app = Service("bench", Broker(database, lease=timedelta(minutes=1)))
            app.include(handle, workers=workers, **options)
            async with app.running():
                await last.wait()
            meter.stop()  # the service has settled all, and stopped

    return loop
