from __future__ import annotations

from random import Random

import pytest

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.settlement import Destination, Policy, Settlement, Spent, Verb, decide


@pytest.mark.parametrize("text", ["", "dead", "{group}", "{group}{group}.dead", "{grp}.dead"])
def test_a_name_with_the_group_in_it_once_is_needed(text: str) -> None:
    assert GroupShape.read(text) is None


@pytest.mark.parametrize("text", ["{group}.dead", "dead.{group}", "<{group}>", "aa{group}aa"])
@pytest.mark.parametrize("group", ["acme", "", "a"])
def test_what_is_made_of_a_group_has_the_shape(text: str, group: str) -> None:
    shape = GroupShape.read(text)
    assert shape is not None
    assert str(shape) == text
    assert shape.of(group) == text.replace("{group}", group)
    assert shape.fits(shape.of(group))
    assert not shape.fits(group)


def test_what_stands_before_and_after_does_not_overlap() -> None:
    assert not GroupShape("aa", "aa").fits("aaa")


def test_each_group_has_its_own_dead_letter() -> None:
    destination = Destination(shape=GroupShape("", ".dead"))
    policy = Policy(max_attempts=2, destination=destination)
    moved = decide(Spent(), attempt=3, policy=policy, random=Random(1), group="acme")
    assert moved == Settlement(Verb.MOVE, destination=Destination(group="acme.dead"))
    assert (destination.name, destination.of("acme").name) == ("{group}.dead", "acme.dead")
