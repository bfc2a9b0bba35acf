"""The targets as bars: how much of what it must be each figure is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from .results import Results
from .targets import Target

__all__ = ["as_svg"]

_LINE: Final = 22
_TEXT: Final = 540
_BARS: Final = 360
_WIDTH: Final = _TEXT + _BARS + 140
_MOST: Final = 2.0
"""Bars end here, however much more there is."""
_HEAD: Final = 56
_TITLE: Final = (
    "inboxkit: each figure beside what it must be (the line); "
    f"longer is better, bars end at {_MOST:g} times that"
)
_COLOURS: Final = {"met": "#2a9d8f", "missed": "#d1495b"}
_STYLE: Final = (
    "text { font: 12px system-ui, sans-serif; fill: #222 } .bound { stroke: #222; stroke-width: 1.5 } "
    ".back { fill: #fff }"
)


def as_svg(targets: Sequence[Target], results: Results) -> str:
    """A drawing of all targets that were measured; the line is what each of them must reach."""
    height = _HEAD + _LINE * len(targets) + 16
    bound = _TEXT + _BARS / _MOST
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_TITLE}</title><style>{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{height}"/>',
        f'<text x="8" y="22" font-weight="bold">{_TITLE}</text>',
    ]
    for number, target in enumerate(targets):
        parts += _bar(target, results, _HEAD + number * _LINE)
    parts.append(
        f'<line class="bound" x1="{bound}" x2="{bound}" y1="{_HEAD - 14}" y2="{height - 8}"/></svg>\n'
    )
    return "\n".join(parts)


def _bar(target: Target, results: Results, y: int) -> Iterator[str]:
    yield f'<text x="{_TEXT - 8}" y="{y + 12}" text-anchor="end">{escape(target.what)}</text>'
    share, verdict, found = target.share(results), target.verdict(results), target.found(results)
    if share is None or found is None:
        yield f'<text x="{_TEXT + 4}" y="{y + 12}">{verdict}</text>'
        return
    width = _BARS * min(share, _MOST) / _MOST
    yield (
        f'<rect x="{_TEXT}" y="{y}" width="{width:.1f}" height="{_LINE - 6}" rx="2" '
        f'fill="{_COLOURS[verdict]}"/>'
    )
    sign = "≤" if target.less_is_better else "≥"
    label = f"{found.middle:.3g} {target.unit} ({sign} {target.must:g})".replace("  ", " ")
    yield f'<text x="{_TEXT + _BARS + 8}" y="{y + 12}">{label}</text>'
