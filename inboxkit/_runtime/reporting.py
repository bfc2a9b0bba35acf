"""The log of one subscription: every record carries its event, and every one about a row says which."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

from inboxkit import events
from inboxkit._core.settlement import Settlement, Verb
from inboxkit.abc import Claim, Claimed, Clock
from inboxkit.errors import LeaseLostError

from .held import Held
from .listeners import Listeners
from .records import (
    about,
    about_event,
    attempt_of,
    describe_error,
    escape,
    log,
    logger,
    place,
    printable,
)

__all__ = ["GONE", "Outage", "Reporter"]

GONE: Final = "the row is gone, or finished by somebody else"
"""Why a hold is lost that nobody took: the row was deleted, or changed by hand."""


class Outage:
    """Whether the log has told already that the database does not answer; shared by a service's queues."""

    def __init__(self) -> None:
        self.is_told = False


class Reporter:
    """Says what happened, as a log record and the event in it. A log that raises changes nothing.

    Args:
        instance: The service's name.
        queue: The queue's name.
        clock: Stamps the events.
        table: Its table's name.
        outage: The service's.
        listeners: The service's.
    """

    def __init__(
        self,
        instance: str,
        queue: str,
        clock: Clock,
        *,
        table: str = "",
        outage: Outage | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.instance = instance
        self.queue = queue
        self._table = table
        self._clock = clock
        self._outage = outage or Outage()
        self._listeners = listeners or Listeners()

    @property
    def is_heard(self) -> bool:
        """Whether anybody wants events that the log does not have."""
        return bool(self._listeners.all)

    def claim_ended(self, since: float, claim: Claim | Exception) -> None:
        """A claim was answered, or failed.

        Args:
            since: The monotonic second of its beginning.
            claim: What it brought, or why it failed.
        """
        rows: tuple[Claimed, ...] = ()
        undecodable, error = 0, ""
        if isinstance(claim, Claim):
            rows, undecodable = claim.rows, claim.undecodable
        else:
            error = describe_error(claim)
        self._listeners.tell(
            events.ClaimEnded(
                at=self._clock.now(),
                instance=self.instance,
                queue=self.queue,
                rows=len(rows) + undecodable,
                took=timedelta(seconds=self._clock.monotonic() - since),
                error=error,
                headers={row.fence.id: row.headers for row in rows if row.headers},
            )
        )

    def claimed(self, held: Held) -> None:
        """The row is in work here."""
        if self._listeners.all or logger.isEnabledFor(logging.DEBUG):
            until = held.tokens[0] if held.tokens else None
            event = events.Claimed(**self._row(held), locked_until=until)
            self._send(logging.DEBUG, "claimed row %r", held, event)

    def renewed(self, held: Held) -> None:
        """The lease was prolonged."""
        if self._listeners.all or logger.isEnabledFor(logging.DEBUG):
            event = events.Renewed(**self._row(held), locked_until=held.tokens[0])
            self._send(logging.DEBUG, "renewed row %r", held, event)

    def lost(self, held: Held, reason: str, *, is_gone: bool = False) -> LeaseLostError:
        """The hold is lost; returns the error that middleware sees.

        Args:
            held: The delivery.
            reason: How it was lost.
            is_gone: There is no such row any more, or it is finished.
        """
        hold = "hold" if held.lease is None else "lease"
        error = LeaseLostError(
            f"{self._place(held)}: the {hold} of row {held.id!r} is lost{attempt_of(held)} ({reason}); "
            f"nothing was written{'' if is_gone else ', the row is handed out again'}",
            queue=self.queue,
            id=held.id,
        )
        event = events.Lost(**self._row(held), reason=reason)
        self._listeners.tell(event)
        log(logging.WARNING, "%s", error, extra=about_event(event))
        return error

    def settled(self, held: Held, ending: Settlement, due: datetime | None) -> None:
        """A settlement was written."""
        match ending.verb:
            case Verb.FINISH:
                self.finished(held, held.outcome, held.note)
            case Verb.MOVE:
                self.dead_lettered(held, ending.destination.name if ending.destination else "")
            case Verb.GIVE_BACK | Verb.POSTPONE | Verb.HOLD:
                self.retried(held, ending.delay, due)

    def finished(self, held: Held, outcome: str, reason: str = "") -> None:
        """The row is done with."""
        is_drop = outcome == "drop"
        if not is_drop and not self._listeners.all and not logger.isEnabledFor(logging.DEBUG):
            return
        event = events.Finished(**self._row(held), outcome=outcome, reason=reason)
        if is_drop:
            why = escape(printable(reason)) or "no reason given"
            self._send(logging.WARNING, f"dropped row %r ({why})", held, event)
        else:
            self._send(logging.DEBUG, "acked row %r", held, event)

    def failed(self, held: Held, error: BaseException, *, traceback: bool = True) -> None:
        """The handler failed, or could not be given its message.

        Args:
            held: The delivery.
            error: What was raised.
            traceback: Whether it is to be shown; not again for each row of a batch.
        """
        event = events.Failed(**self._row(held), error=describe_error(error))
        self._send(
            logging.ERROR,
            f"row %r failed: {escape(event.error)}",
            held,
            event,
            error if traceback else None,
        )

    def retried(self, held: Held, delay: timedelta, due: datetime | None) -> None:
        """The row will be handed out again."""
        event = events.Retried(**self._row(held), delay=delay, due=due)
        self._send(logging.INFO, f"row %r will be handed out again after {delay}", held, event)

    def dead_lettered(self, held: Held, destination: str) -> None:
        """The row was moved."""
        event = events.DeadLettered(**self._row(held), destination=destination)
        text = f"row %r went to the dead letter {escape(repr(destination))}"
        self._send(logging.WARNING, text, held, event)

    def released(self, held: Held, give_back: bool) -> None:
        """The row was given back unsettled."""
        event = events.Released(**self._row(held), given_back=give_back)
        self._send(logging.INFO, "released row %r unsettled", held, event)

    def outcome_unknown(
        self, held: Held, *, is_gone: bool = False, error: BaseException | None = None
    ) -> None:
        """A settlement's answer was lost, and the row no longer tells; or it is gone, and so settled.

        Where a session held the row, nobody looks: it is handed out again, or it was settled.
        """
        event = events.OutcomeUnknown(**self._row(held), is_gone=is_gone)
        text = "row %r: the answer to its settlement was lost"
        if is_gone:
            self._send(logging.INFO, f"{text}; the row is gone or finished", held, event)
        elif held.lease is None:
            text += "; if it was not written, the row is handed out again"
            self._send(logging.WARNING, text, held, event, error)
        else:
            self._send(logging.WARNING, f"{text}, and the row shows another state now", held, event)

    def paused(self) -> None:
        """The queue claims nothing from now on."""
        self._of_queue(events.Paused, "paused: it claims nothing until it is resumed")

    def resumed(self) -> None:
        """The queue claims again."""
        self._of_queue(events.Resumed, "resumed")

    def _of_queue(self, kind: type[events.Paused | events.Resumed], what: str) -> None:
        event = kind(at=self._clock.now(), instance=self.instance, queue=self.queue)
        self._listeners.tell(event)
        log(logging.INFO, "queue %r is %s", self.queue, what, extra={"event": event})

    def unsettled(
        self, held: Held, text: str, error: BaseException | None = None, *, is_told: bool = True
    ) -> None:
        """A settlement or release could not be written, and nothing more will be.

        Args:
            held: The delivery.
            text: What it means for the row.
            error: What was in the way.
            is_told: Whether the log is to have it; not for each row of a batch that failed together.
        """
        why = "" if error is None else describe_error(error)
        event = events.Unsettled(**self._row(held), error=why)
        self._listeners.tell(event)
        if is_told:
            self._say(text, error, held, {"event": event})

    def left(self, held: Held) -> None:
        """The service ends, and the row's settlement or release was not answered, if it was sent."""
        end = "session" if held.lease is None else "lease"
        self.unsettled(
            held,
            f"row {held.id!r} is left unsettled by the stop: the database did not answer in time; "
            f"unless it did what it was asked, the row comes back when its {end} ends",
        )

    def trouble(
        self, text: str, error: BaseException | None = None, *, held: Held | None = None
    ) -> None:
        """Something about the whole queue, or about the row of one delivery."""
        self._say(text, error, held, {})

    def _say(
        self, text: str, error: BaseException | None, held: Held | None, extra: dict[str, Any]
    ) -> None:
        where, what = f"queue {self.queue!r}", {"queue": self.queue}
        if held is not None:
            where, what = f"{self._place(held)}{attempt_of(held)}", about(self.queue, held)
        log(logging.WARNING, "%s: %s", where, text, exc_info=error, extra={**what, **extra})

    def outage(self, text: str, error: BaseException | None, *, held: Held | None = None) -> bool:
        """Something failed that an outage of the database explains.

        Returns:
            Whether it was said: of an outage only the first trouble is.
        """
        if self._outage.is_told:
            return False
        self._outage.is_told = True
        self.trouble(text, error, held=held)
        return True

    def recovered(self) -> None:
        """The database answers."""
        if self._outage.is_told:
            self._outage.is_told = False
            extra = {"queue": self.queue}
            log(logging.INFO, "queue %r: the database answers again", self.queue, extra=extra)

    def _row(self, held: Held) -> dict[str, Any]:
        return {
            "at": self._clock.now(),
            "instance": self.instance,
            "queue": self.queue,
            "id": held.id,
            "attempt": held.claimed.attempt,
            "table": self._table,
            "group": held.claimed.group,
        }

    def _send(
        self,
        level: int,
        text: str,
        held: Held,
        event: events.RowEvent,
        error: BaseException | None = None,
    ) -> None:
        self._listeners.tell(event)
        if not logger.isEnabledFor(level):
            return
        log(
            level,
            f"%s: {text}%s",
            self._place(held),
            held.id,
            attempt_of(held),
            exc_info=error,
            extra=about_event(event),
        )

    def _place(self, held: Held) -> str:
        return place(self.queue, held.claimed.group)
