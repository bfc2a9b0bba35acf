"""The timeline's page in a real browser: what is drawn, for whom, and what the keyboard can reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inboxkit_testing.servers import required_servers

from .browser import Browser, missing_programs
from .test_timeline_page import HOSTILE, told

DOWN, ENTER, ESCAPE = "\ue015", "\ue007", "\ue00c"
NARROW, WIDE = 390, 1600

CONTRASTS = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const over = colours => {  // as they are painted, one over the other
  canvas.clearRect(0, 0, 1, 1);
  for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = rgb => {
  const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const grounds = e => {
  const found = [];
  for (; e; e = e.parentElement) found.unshift(getComputedStyle(e).backgroundColor);
  return found;
};
const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const found = {};
for (const [selector, what] of Object.entries(arguments[0])) {
  const all = [...document.querySelectorAll(selector)];
  found[selector] = all.length ? Math.min(...all.map(e => {
    const below = grounds(what === "color" ? e : e.parentElement);
    return ratio(light(over([...below, getComputedStyle(e)[what]])), light(over(below)));
  })) : 0;
}
return found;
"""
TEXTS = dict.fromkeys(
    [
        "h1",
        "#facts",
        "#tools label",
        "#axis .t",
        "#corner",
        ".lane > .name",
        ".lane .q",
        "#legend span",
        ".mark b",
        "aside h2",
        "aside time",
        "aside li span",
    ],
    "color",
)
SHAPES = {
    ".bar.run": "backgroundColor",
    ".bar.hold": "borderTopColor",
    ".bar.rest": "borderTopColor",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    missing = missing_programs()
    if missing and "chromium" in required_servers():
        pytest.fail(f"INBOXKIT_REQUIRE lists chromium; missing: {missing}", pytrace=False)
    if missing:
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("few") / "page.html"
    told(3).write_html(path, title=HOSTILE)
    return path.as_uri()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("many") / "page.html"
    told(3000).write_html(path)
    return path.as_uri()


def opened(browser: Browser, address: str, **look: Any) -> None:
    """Open the page, which asks for nothing and says nothing."""
    browser.look(**look)
    browser.open(address)
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    assert browser.requests() == [address]
    assert browser.console() == []


def texts(browser: Browser, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    found: list[str] = browser.run(script, selector)
    return found


def drawn(browser: Browser) -> None:
    """Return when what was asked for has been drawn."""
    browser.run_until_told("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_lane_for_each_instance_and_row_that_can_be_read(
    browser: Browser, few: str, width: int, dark: bool
) -> None:
    opened(browser, few, width=width, dark=dark)
    assert texts(browser, "h1") == [HOSTILE]
    assert texts(browser, ".lane.instance > .name") == ["a", "b"]
    names = [f"row {n} jobs" for n in range(3)]
    assert texts(browser, ".lane:not(.instance) > .name") == names
    # Nothing but the lanes goes sideways, and all of the window is used.
    assert browser.run("return document.documentElement.scrollWidth") == width
    shown = "const r = document.getElementById('legend').getBoundingClientRect(); return r.bottom"
    assert browser.run(shown) == pytest.approx(800, abs=1)
    browser.run("document.querySelectorAll('.lane > .name')[2].click()")
    drawn(browser)
    contrasts = browser.run(CONTRASTS, TEXTS)
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}
    contrasts = browser.run(CONTRASTS, SHAPES)
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 3} == {}
    page = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (page == "rgb(247, 247, 245)") is not dark


def test_it_zooms_scrolls_and_tells_what_is_pointed_at(browser: Browser, few: str) -> None:
    opened(browser, few, width=WIDE)
    sideways = "const s = document.getElementById('scroll'); return [s.scrollWidth - s.clientWidth, s.scrollLeft]"
    assert browser.run(sideways) == [0, 0]
    browser.run("document.getElementById('in').click(); document.getElementById('in').click()")
    drawn(browser)
    room, before = browser.run(sideways)
    assert room > WIDE
    browser.run("document.getElementById('scroll').scrollLeft += 300")
    drawn(browser)
    assert browser.run(sideways) == [room, pytest.approx(before + 300, abs=1)]
    # What has left the window on the left is drawn no more; the names stay.
    left = "return document.querySelector('.lane > .name').getBoundingClientRect().left"
    assert browser.run(left) == 0
    browser.run("document.getElementById('fit').click()")
    drawn(browser)
    assert browser.run(sideways) == [0, 0]
    place = """
    const r = document.querySelector(arguments[0]).getBoundingClientRect();
    return [r.left + r.width / 2, r.top + r.height / 2];
    """
    browser.point(*browser.run(place, ".bar.run"))
    assert texts(browser, "#tip") == ["a: handler runs\n00:00:02 \u2013 00:00:04"]
    browser.point(5, 5)
    assert browser.run("return document.getElementById('tip').hidden")


def test_the_keyboard_reaches_everything(browser: Browser, few: str) -> None:
    opened(browser, few, width=WIDE)
    focused = "return document.activeElement.textContent"
    browser.run("document.querySelector('.lane > .name').focus()")
    browser.press(DOWN, DOWN)
    assert browser.run(focused) == "row 0 jobs"
    browser.press(ENTER)
    drawn(browser)
    assert texts(browser, "aside h2") == ["row 0 of jobs"]
    assert "claimed, attempt 2, lease for 00:00:30" in texts(browser, "aside ol")[0]
    assert browser.run(focused) == "row 0 jobs"  # though the lane was drawn anew
    browser.press("+")
    drawn(browser)
    assert browser.run("return document.getElementById('sheet').offsetWidth") > WIDE
    browser.press("0", ESCAPE)
    drawn(browser)
    assert browser.run("return document.getElementById('panel').hidden")
    assert browser.run(focused) == "row 0 jobs"


def test_of_thousands_of_rows_those_in_view_are_drawn(browser: Browser, many: str) -> None:
    opened(browser, many, width=WIDE)
    size = "return document.querySelectorAll('*').length"
    assert texts(browser, "#corner") == ["3000 rows"]
    assert texts(browser, ".lane > .name")[:3] == ["a", "b", "row 0 jobs"]
    assert browser.run(size) < 600
    browser.run("document.getElementById('scroll').scrollTop = 1e9")
    drawn(browser)
    assert texts(browser, ".lane > .name")[-1] == "row 2999 jobs"
    assert browser.run(size) < 600
    # The keyboard goes on where the drawn ones end.
    browser.run("[...document.querySelectorAll('.lane > .name')].at(-1).focus()")
    browser.press(*["\ue013"] * 40)
    assert browser.run("return document.activeElement.textContent") == "row 2959 jobs"
    browser.run("document.getElementById('trouble').click()")
    drawn(browser)
    assert texts(browser, ".lane > .name") == ["a", "b", "row 0 jobs"]
    assert texts(browser, "#corner") == ["1 of 3000 rows"]
