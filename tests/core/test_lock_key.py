from __future__ import annotations

import pytest

from inboxkit._core.lock_key import KeyField, parse_key, render_key


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("jobs", ("jobs",)),
        ("jobs-{id}", ("jobs-", KeyField("id"))),
        ("{a}{b}", (KeyField("a"), KeyField("b"))),
        ("{ a }:x", (KeyField("a"), ":x")),
        ("{{literal}}-{a}", ("{literal}-", KeyField("a"))),
        ("", ()),
    ],
)
def test_keys_are_text_and_fields(text: str, parts: tuple[object, ...]) -> None:
    assert parse_key(text) == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs-{id", "position 5 is never closed"),
        ("jobs-{}", "position 5 are empty"),
        ("jobs-{ }", "position 5 are empty"),
        ("jobs-id}", "position 7 closes nothing"),
        ("{a{b}", "position 0 is not closed"),
    ],
)
def test_malformed_keys_say_where(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_key(text)


def test_keys_are_rendered() -> None:
    parts = parse_key("jobs:{tenant}/{{{id}}}")
    assert render_key(parts, {"tenant": "acme", "id": 7}) == "jobs:acme/{7}"
