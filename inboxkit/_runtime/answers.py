"""What a handler may answer, and what to say of anything else."""

from __future__ import annotations

import inspect

from inboxkit._core.outcomes import Ack, Drop, Outcome, Retry, ack

__all__ = ["checked", "shown"]

_MAKERS = frozenset({"ack", "retry", "retry_after", "drop"})


def checked(answer: object, who: str) -> Outcome:
    """The outcome that was answered; None is an ack.

    Args:
        answer: What was returned, or raised as `Settle`.
        who: Names the handler or middleware.

    Raises:
        TypeError: It is none.
    """
    if answer is None:
        return ack()
    if isinstance(answer, Ack | Retry | Drop):
        return answer
    raise TypeError(
        f"{who} returns ack(), retry(), retry_after(…), drop(…) or None, not {shown(answer)}"
    )


def shown(answer: object) -> str:
    """What stands in an outcome's place: its type, and the cure where it can be told."""
    if inspect.iscoroutine(answer):
        name = answer.__qualname__
        answer.close()  # it is said here, and need not be warned of where it is collected
        return f"the coroutine of {name}, which was not awaited: write return await"
    name = getattr(answer, "__name__", "")
    if inspect.isfunction(answer) and name in _MAKERS:
        return f"the function {name}: call it"
    return type(answer).__name__
