"""What must hold in every state of a small world, and of every step; it shares no code with the rules."""

from __future__ import annotations

from collections.abc import Iterator

from .rules_world import Action, Delivery, Done, Row, State, World

__all__ = ["broken_by", "broken_in"]

LEASE = 30


def broken_in(world: World, state: State) -> Iterator[str]:
    """The invariants that a state breaks."""
    ids = [row.id for row in state.rows]
    if sorted([*ids, *state.finished, *state.coming]) != list(range(1, len(world.rows) + 1)):
        yield "a row is lost, or there twice"
    if any(row.attempt > world.cap + 1 for row in state.rows):
        yield "an attempt is past its cap by more than one"
    current = [one.row for each in state.workers for one in each if one.is_current]
    if len(current) != len(set(current)):
        yield "a row is in work twice"
    kept = [one.hold for each in state.workers for one in each]
    if any(number not in kept for number, _ in state.held):
        yield "a session holds a row that nobody has"
    waiting = {row.id for row in state.rows if row.group == "a"}
    if world.claimable_in_the_end(state) != waiting:
        yield "a row is never claimed again"


def broken_by(world: World, before: State, action: Action, done: Done) -> Iterator[str]:
    """The invariants that a step breaks."""
    after = {row.id: row for row in done.state.rows}
    if action.kind == "claim":
        yield from _broken_by_claim(world, before, action, done)
        return
    named = action.kind in ("settle", "release", "renew")
    for row in before.rows:
        if _changed(row, after.get(row.id)) and not (named and row.id == action.row):
            yield "a row was written that nobody meant"
    if not named:
        return
    one = next(one for one in before.workers[action.worker] if one.row == action.row)
    row = next((row for row in before.rows if row.id == action.row), None)
    is_written = row is not None and _changed(row, after.get(row.id))
    if is_written and not one.is_current:
        yield "a row was written without its hold"
    if action.loss == "request" and is_written:
        yield "a lost request was written"
    if action.kind == "renew":
        yield from _broken_by_renewal(world, before, one, row, done)
        return
    yield from _broken_by_ending(world, before, action, one, done)


def _changed(row: Row, other: Row | None) -> bool:
    """Whether they differ, but for what makes one expiry unlike others."""
    if other is None or row[:-1] != other[:-1] or (row.token is None) != (other.token is None):
        return True
    return row.token is not None and other.token is not None and row.token[0] != other.token[0]


def _broken_by_claim(world: World, before: State, action: Action, done: Done) -> Iterator[str]:
    expected: list[tuple[int, int, bool]] = []
    if action.loss != "request":
        for row in _claimable(world, before):
            spent = row.attempt > world.cap
            expected.append((row.id, row.attempt, spent))
    is_silent = action.loss == "reply"
    if not action.loss and done.answer != expected:
        yield _what_is_wrong(world, before, [id for id, _, _ in done.answer], expected)
    taken = [id for id, _, _ in expected]
    for row, now in zip(before.rows, done.state.rows, strict=True):
        counts = row.id in taken and world.form != "row lock"
        is_spent = row.attempt > world.cap
        if now.attempt != row.attempt + (counts and not is_spent):
            yield "a claim miscounted"
        leased = row.id in taken and world.is_lease
        if leased and (now.token is None or now.token[0] != before.now + LEASE):
            yield "a lease does not end when it should"
        if not leased and _changed(now, row._replace(attempt=now.attempt)):
            yield "a claim wrote a row that it did not take"
    if not is_silent and not world.is_lease:
        held = {row for _, row in done.state.held} - {row for _, row in before.held}
        if held != {id for id, _, _ in expected}:
            yield "a claim holds other rows than it says"


def _claimable(world: World, state: State) -> list[Row]:
    waiting = sorted(
        (row for row in state.rows if row.group == "a"),
        key=lambda row: (row.priority, row.due, row.id),
    )
    if world.fifo:
        waiting = [] if any(_in_work(state, row) for row in waiting) else waiting[:1]
    free = [row for row in waiting if row.due <= state.now and not _in_work(state, row)]
    return free[: world.limit if world.is_lease else 1]


def _in_work(state: State, row: Row) -> bool:
    leased = row.token is not None and row.token > (state.now, 0)
    return leased or row.id in [held for _, held in state.held]


def _what_is_wrong(
    world: World, state: State, taken: list[int], expected: list[tuple[int, int, bool]]
) -> str:
    rows = {row.id: row for row in state.rows}
    for id in taken:
        if _in_work(state, rows[id]):
            return "a row in work was claimed"
        if rows[id].due > state.now:
            return "a row was claimed before it was due"
        if world.fifo and any(_in_work(state, row) for row in state.rows if row.group == "a"):
            return "two of a FIFO group are in work"
    if sorted(taken) == sorted(id for id, _, _ in expected):
        return "a claim tells a wrong attempt, or a wrong order"
    return "a claim took other rows than the first that are due"


def _broken_by_renewal(
    world: World, before: State, one: Delivery, row: Row | None, done: Done
) -> Iterator[str]:
    others = [other for other in before.rows if other.group == "a" and other.id != one.row]
    taken_over = world.fifo and any(_in_work(before, other) for other in others)
    if done.answer == "renewed":
        token = next(row.token for row in done.state.rows if row.id == one.row)
        if not one.is_current:
            yield "a hold was renewed that had ended"
        if taken_over:
            yield "a hold was renewed though its group was taken over"
        if token is None or token[0] < before.now + LEASE:
            yield "a renewed lease ends too early"
    elif done.answer == "lost" and one.is_current and row is not None and not taken_over:
        yield "a row was called lost though it was held"


def _broken_by_ending(
    world: World, before: State, action: Action, one: Delivery, done: Done
) -> Iterator[str]:
    row = next((row for row in before.rows if row.id == action.row), None)
    after = next((row for row in done.state.rows if row.id == action.row), None)
    if done.answer == "written" and not one.is_current:
        yield "a settlement was written twice, or without its hold"
    if done.answer in ("lost", "gone") and one.is_current:
        yield "a row was called lost though it was held"
    takes_effect = one.is_current and action.loss != "request" and row is not None
    if not takes_effect:
        return
    assert row is not None
    if action.verb == "finish":
        if after is not None:
            yield "a finished row is there still"
        return
    if after is None:
        yield "a row is lost, or there twice"
        return
    if after != _expected(world, before.now, action, one, row)._replace(token=after.token):
        yield "a settlement wrote something else"
    if action.verb == "hold" and world.is_lease:
        if after.token is None or after.token[0] != before.now + 10:
            yield "a row is not held back"
    elif after.token is not None:
        yield "a settled row is leased"


def _expected(world: World, now: int, action: Action, one: Delivery, row: Row) -> Row:
    counted_late = world.form == "row lock" and not one.spent
    match action.verb:
        case "give back" if action.kind == "release":
            return row._replace(attempt=row.attempt - (one.counted and not counted_late))
        case "postpone":
            return row._replace(due=now + 16, attempt=row.attempt + counted_late)
        case "move":
            return row._replace(group="dead")
        case _:  # given back and counted, or held back
            return row._replace(attempt=row.attempt + counted_late)
