"""When a recurring job is due next, by a cron expression in a time zone. The extra `cron`."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from inboxkit.errors import DeclarationError, MissingExtraError

try:
    from cronsim import CronSim, CronSimError
except ImportError as _error:
    raise MissingExtraError(
        "inboxkit.contrib.cron needs cronsim: pip install 'inboxkit[cron]'"
    ) from _error

__all__ = ["next_run"]


def next_run(expression: str, zone: str, *, after: datetime) -> datetime:
    """The first instant behind another at which a cron expression holds.

    Where clocks are put forward, a time that is left out that day is the first minute behind the gap.
    Where they are put back, a time that comes twice is the first of the two; but an expression whose
    minutes or hours begin with ``*`` goes on by elapsed time, in both directions, as Debian's cron does.

    Args:
        expression: Five fields, such as ``"30 2 * * MON-FRI"``, or six, the first of them seconds.
        zone: An IANA time zone, such as ``"Europe/Berlin"``, in whose local time it holds.
        after: An aware instant, in any zone.

    Returns:
        An instant later than `after`, in UTC.

    Raises:
        DeclarationError: The expression or the zone is none, `after` is not aware, or the expression
            holds at no time of the next 50 years.
    """
    if not isinstance(after, datetime) or after.utcoffset() is None:
        raise DeclarationError(f"next_run: after must be an aware datetime, not {after!r}")
    try:
        local = after.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise DeclarationError(
            f"next_run: {zone!r} is no IANA time zone that this host knows; write one such as "
            "'Europe/Berlin', or pip install tzdata"
        ) from error
    try:
        # In the hour that comes twice, the second time, cronsim goes on from the first: behind `after`
        # is what it gives only then.
        for found in CronSim(expression, local):
            if (due := found.astimezone(UTC)) > after:
                return due
    except (CronSimError, AttributeError) as error:
        raise DeclarationError(
            f"next_run: {expression!r} is no cron expression: {error}"
        ) from error
    raise DeclarationError(f"next_run: {expression!r} holds at no time of the next 50 years")
