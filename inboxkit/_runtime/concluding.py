"""What is to be written once a delivery has come to its end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from inboxkit._core.outcomes import Drop, Retry
from inboxkit._core.settlement import Ending, Returned, Settlement, Spent, Verb, decide

from .handling import Handled
from .held import Held, Release
from .plan import Plan
from .reporting import Reporter

__all__ = ["Conclusions"]


class Conclusions:
    """Makes settlements and releases of what handlers did.

    Args:
        plan: The subscription's.
        random: The service's seeded source, for back-offs.
        report: The log.
        fail: Called with an error that ends the service.
        let_go: Called with a delivery for which nothing is to be written.
    """

    def __init__(
        self,
        plan: Plan,
        random: Random,
        report: Reporter,
        *,
        fail: Callable[[BaseException], None],
        let_go: Callable[[Held], None],
    ) -> None:
        self._plan = plan
        self._random = random
        self._report = report
        self._fail = fail
        self._let_go = let_go
        self._warned_of_delay = False

    def handled(
        self, held: Held, handled: Handled, *, traceback: bool = True
    ) -> Settlement | Release | None:
        """What is to be written; None: nothing, and somebody else sees to it.

        Args:
            held: The delivery.
            handled: How its handler's run ended.
            traceback: Whether the log is to show that of an error.
        """
        if handled.error is not None and not isinstance(handled.error, Exception):
            self._fail(handled.error)
            return self.release(held, counted=True)
        if held.is_lost or handled.ending is None:
            return self.release(held, counted=held.has_returned)
        settlement = self._decide(held, handled.ending)
        if handled.error is not None:
            self._report.failed(held, handled.error, traceback=traceback)
        if settlement is None:
            self._fail(handled.error or RuntimeError("a handler failed"))
            return self.release(held, counted=True)
        self._note(held, handled)
        return settlement

    def spent(self, held: Held) -> Settlement:
        """For a row past its cap."""
        return self._decide(held, Spent()) or Settlement(Verb.GIVE_BACK)

    def release(self, held: Held, *, counted: bool = False) -> Release | None:
        """For a row that is given back unsettled; None: its hold is lost, and it was let go of."""
        if held.is_lost:
            self._let_go(held)
            return None
        return Release(give_back=held.claimed.counted and not counted)

    def _decide(self, held: Held, ending: Ending) -> Settlement | None:
        return decide(
            ending,
            attempt=held.claimed.attempt or 1,
            policy=self._plan.policy,
            random=self._random,
            group=held.claimed.group,
        )

    def _note(self, held: Held, handled: Handled) -> None:
        match handled.ending:
            case Returned(Drop(reason)):
                held.outcome, held.note = "drop", reason
            case Returned(Retry(delay)) if delay and not self._plan.policy.has_retry_after:
                if not self._warned_of_delay:
                    self._warned_of_delay = True
                    self._report.trouble(
                        f"retry_after({delay}) needs a retry_after column, which table "
                        f"{self._plan.table!r} does not have: the row is handed out again at once"
                    )
            case Returned():
                pass
            case _:
                held.outcome = "drop"
                held.note = "its failure policy is 'drop'"
