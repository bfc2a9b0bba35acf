"""A run's events put together: who held a row and when, when its handler ran, who died."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from inboxkit import events

from .marks import Began, Crashed, Ended, Unsure

__all__ = ["Facts", "Hold", "Life", "Moment", "RowKey", "Run", "gather", "key_of", "may_be_settled"]


@dataclass(frozen=True, slots=True)
class RowKey:
    """What tells a row from others, whichever queue it came in or goes out by."""

    table: str
    """Its table; in events that do not name it, the queue."""
    group: str | None
    id: Any
    queue: str = field(compare=False)
    """The queue that it was published to: its group's, where it has one."""


def key_of(event: events.RowEvent | events.Published) -> RowKey:
    """Which row an event is about."""
    if not event.table:
        return RowKey(event.queue, None, event.id, event.queue)
    return RowKey(event.table, event.group, event.id, event.group or event.queue)


FINAL = (events.Finished, events.DeadLettered)
_ENDS_HOLD = (events.Lost, events.Finished, events.Retried, events.DeadLettered, events.Released)


@dataclass(frozen=True, slots=True)
class Moment:
    """An event in its place."""

    index: int
    at: datetime
    """By the true clock, as far as there is one."""
    event: events.Event


@dataclass(slots=True, eq=False)
class Run:
    """One run of a handler."""

    row: RowKey
    began: Moment
    hold: Hold | None = None
    """What held its row; None: nothing is known of it."""
    ended: Moment | None = None
    """Its end, or its process's; None: it goes on."""

    @property
    def event(self) -> Began:
        """Its beginning."""
        assert isinstance(self.began.event, Began)
        return self.began.event

    @property
    def was_killed(self) -> bool:
        """Whether its process died."""
        return self.ended is not None and not isinstance(self.ended.event, Ended)


@dataclass(slots=True, eq=False)
class Hold:
    """A row in work at one instance: from a claim to what ended it."""

    row: RowKey
    claimed: Moment
    life: Life
    """The row's, of several with its id."""
    renewals: list[tuple[Moment, datetime]] = field(default_factory=list)
    """With the lease's new end."""
    end: Moment | None = None
    """What ended it; None: nothing did, or its process died before."""
    runs: list[Run] = field(default_factory=list)
    death: Moment | None = None
    """Its process's, where that came before the end."""

    @property
    def is_by_connection(self) -> bool:
        """Whether a session holds the row, and no lease."""
        return self.event.locked_until is None

    @property
    def event(self) -> events.Claimed:
        """The claim."""
        assert isinstance(self.claimed.event, events.Claimed)
        return self.claimed.event


@dataclass(slots=True, eq=False)
class Life:
    """A row from its insertion to its end; on some tables a later row gets the same id."""

    row: RowKey
    number: int = 1
    """Of those with its id, from 1."""
    published: Moment | None = None
    holds: list[Hold] = field(default_factory=list)
    finals: list[Moment] = field(default_factory=list)
    """What said that it is over: one at most, if all is well."""
    claimed_again: Moment | None = None
    """A claim of it after its end."""
    moments: list[Moment] = field(default_factory=list)


@dataclass(slots=True)
class Facts:
    """What a run's events say."""

    moments: Sequence[Moment]
    holds: list[Hold] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    lives: dict[RowKey, list[Life]] = field(default_factory=dict)
    deaths: list[Moment] = field(default_factory=list)

    def all_lives(self) -> Iterator[Life]:
        """All rows."""
        for lives in self.lives.values():
            yield from lives

    def runs_by(self, key: Any) -> dict[Any, list[Run]]:
        """Runs in order, by what a function says of each; without those of which it says None."""
        found: defaultdict[Any, list[Run]] = defaultdict(list)
        for run in self.runs:
            if (of := key(run)) is not None:
                found[of].append(run)
        return found


def gather(moments: Sequence[Moment]) -> Facts:
    """Put the events together."""
    return _Gathering(moments).facts()


class _Gathering:
    def __init__(self, moments: Sequence[Moment]) -> None:
        self._facts = Facts(moments)
        self._holds: dict[tuple[str, RowKey], Hold] = {}
        self._runs: dict[tuple[str, RowKey], Run] = {}
        self._alive: set[str] = set()
        self._moved: defaultdict[tuple[str, Any], list[int]] = defaultdict(list)
        """Where dead letters came in, by destination and id."""
        self._is_unsure = False
        """Whether there may be rows that nobody has told of."""
        self._inserted: defaultdict[RowKey, list[Moment]] = defaultdict(list)
        for moment in moments:
            if isinstance(event := moment.event, events.Published):
                self._inserted[key_of(event)].append(moment)

    def facts(self) -> Facts:
        for moment in self._facts.moments:
            self._take(moment)
        for row, inserted in self._inserted.items():  # those that nobody ever claimed
            lives = self._facts.lives.setdefault(row, [])
            for moment in inserted[len(lives) :]:
                lives.append(Life(row, len(lives) + 1, moment))
        return self._facts

    def _take(self, moment: Moment) -> None:
        event = moment.event
        match event:
            case events.Started():
                if event.instance in self._alive:  # it has died without a word
                    self._die(moment)
                self._alive.add(event.instance)
            case events.Stopped():
                self._alive.discard(event.instance)
            case Crashed():
                self._die(moment)
            case Unsure():
                self._is_unsure = True
            case events.RowEvent():
                self._is_unsure = self._is_unsure or _has_lost_an_answer(event)
                self._take_of_row(moment, event)

    def _take_of_row(self, moment: Moment, event: events.RowEvent) -> None:
        row = key_of(event)
        place = (event.instance, row)
        hold = self._holds.get(place)
        is_of_hold = hold is not None and not isinstance(event, events.Claimed)
        life = hold.life if hold is not None and is_of_hold else self._life_of(row, moment)
        life.moments.append(moment)
        match event:
            case events.Claimed():
                self._holds[place] = hold = Hold(row, moment, life)
                self._facts.holds.append(hold)
                life.holds.append(hold)
            case events.Renewed(locked_until=until) if hold is not None:
                hold.renewals.append((moment, until))
            case Began():
                self._runs[place] = run = Run(row, moment, hold)
                self._facts.runs.append(run)
                if hold is not None:
                    hold.runs.append(run)
            case Ended() if place in self._runs:
                self._runs.pop(place).ended = moment
            case _ if hold is not None and _is_end(event, hold):
                del self._holds[place]
                hold.end = moment
        if isinstance(event, FINAL):
            life.finals.append(moment)
        if isinstance(event, events.DeadLettered):
            self._moved[event.destination, event.id].append(moment.index)

    def _life_of(self, row: RowKey, moment: Moment) -> Life:
        lives = self._facts.lives.setdefault(row, [])
        inserted = self._inserted[row]
        if not lives:
            lives.append(Life(row, 1, inserted[0] if inserted else None))
        life = lives[-1]
        if not isinstance(moment.event, events.Claimed):
            return life
        if self._may_be_another(life, moment, moment.event.attempt):
            next_one = inserted[life.number] if life.number < len(inserted) else None
            lives.append(life := Life(row, life.number + 1, next_one))
        elif life.finals and life.claimed_again is None:
            life.claimed_again = moment
        return life

    def _may_be_another(self, life: Life, claimed: Moment, attempt: int | None) -> bool:
        """Whether a claim may be of another row with this id, or of one that was put back."""
        if life.finals and isinstance(life.finals[-1].event, events.DeadLettered):
            return True
        if life.finals:  # its id is free again
            moved = self._moved[life.row.group or life.row.table, life.row.id]
            if any(index > life.finals[-1].index for index in moved):
                return True
        is_first = attempt in (None, 1) or self._was_inserted(life, claimed)
        if self._is_unsure and is_first and _may_be_over(life):
            return True
        inserted = self._inserted[life.row]
        if life.number < len(inserted):
            # A second row of this id says that the first is gone, though nobody else could say so.
            # Either may be logged after its claim.
            is_there = inserted[life.number].index < claimed.index
            return bool(life.finals) or is_there or (attempt == 1 and may_be_settled(life))
        return not inserted and attempt == 1 and (bool(life.finals) or _was_found_gone(life))

    def _was_inserted(self, life: Life, claimed: Moment) -> bool:
        """Whether a row of this id was told of between a row's end and a claim."""
        end = life.finals[-1].index if life.finals else claimed.index
        return any(end < moment.index < claimed.index for moment in self._inserted[life.row])

    def _die(self, moment: Moment) -> None:
        instance = moment.event.instance
        self._alive.discard(instance)
        self._facts.deaths.append(moment)
        for place in [place for place in self._holds if place[0] == instance]:
            self._is_unsure = True  # what its handler has published may be there
            self._holds.pop(place).death = moment
        for place in [place for place in self._runs if place[0] == instance]:
            self._runs.pop(place).ended = moment


def _is_end(event: events.RowEvent, hold: Hold) -> bool:
    """An answer that was lost has ended the session too, where one held the row."""
    is_cut = isinstance(event, events.OutcomeUnknown) and hold.is_by_connection
    return is_cut or isinstance(event, _ENDS_HOLD)


def _has_lost_an_answer(event: events.RowEvent) -> bool:
    """Whether what the handler has published may be there although nobody told of it."""
    if isinstance(event, Ended):
        return event.outcome == "OutcomeUnknownError"
    return isinstance(event, events.OutcomeUnknown)


def may_be_settled(life: Life) -> bool:
    """Whether somebody may have settled it without being able to say so."""
    return (
        _was_found_gone(life)
        or _is_outcome_unknown(life)
        or any(hold.death is not None and _was_about_to_settle(hold) for hold in life.holds)
    )


def _may_be_over(life: Life) -> bool:
    """Whether its id may be free again."""
    is_unknown = any(isinstance(moment.event, events.OutcomeUnknown) for moment in life.moments)
    return bool(life.finals) or is_unknown or may_be_settled(life)


def _was_found_gone(life: Life) -> bool:
    return any(
        isinstance(moment.event, events.OutcomeUnknown) and moment.event.is_gone
        for moment in life.moments
    )


def _is_outcome_unknown(life: Life) -> bool:
    """Whether the answer to its last settlement was lost with the session that held it, so that nobody
    could look what became of it; a claim afterwards shows that it was not written."""
    last = life.holds[-1] if life.holds else None
    if last is None or last.end is None or not last.is_by_connection:
        return False
    return isinstance(last.end.event, events.OutcomeUnknown)


def _was_about_to_settle(hold: Hold) -> bool:
    # Without runs nobody knows how far the handler was.
    return not hold.runs or any(
        isinstance(run.ended.event if run.ended else None, Ended) for run in hold.runs
    )
