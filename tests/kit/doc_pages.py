"""The code in a page of the documentation, block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
_HIDDEN = re.compile(r"<!-- (test|run|sql)\n(.*?)-->", re.DOTALL)
"""Code that readers do not see: what tries the code that they do."""
_NOT_RUN = re.compile(r"<!-- not run: (\S.*?) ?-->", re.DOTALL)
_SETTING = re.compile(r"<!-- (databases|backends): ([\w, -]+?) -->")
_FILE = re.compile(r"(?:#|--) ([\w./-]+\.(?:py|ini|toml|sql))\n")
_LANGUAGES = {"test": "python", "run": "sh", "sql": "sql"}


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code."""

    language: str
    text: str
    line: int
    """Of its first line in the page, from 1."""
    reason: str = ""
    """Why it is not run; empty: it is."""

    @property
    def file(self) -> str | None:
        """The file that it is to be saved as: its first line names it in a comment."""
        found = _FILE.match(self.text)
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Page:
    """A page."""

    path: Path
    blocks: tuple[Block, ...]
    databases: tuple[str, ...] = ("sqlite",)
    backends: tuple[str, ...] = ("asyncio",)

    def of(self, *languages: str) -> list[Block]:
        """Its blocks in these languages that are run."""
        return [one for one in self.blocks if one.language in languages and not one.reason]

    @property
    def module(self) -> str:
        """Its Python that is no file of its own, as one module; each line where it stands in the page."""
        lines: list[str] = []
        for block in self.of("python"):
            if block.file is None:
                lines += [""] * (block.line - 1 - len(lines))
                lines += block.text.splitlines()
        return "\n".join(lines) + "\n" if lines else ""


def read_page(path: Path) -> Page:
    """Read a page.

    Raises:
        ValueError: Something is said of a block that does not follow.
    """
    return parse_page(path, path.read_text(encoding="utf-8"))


def parse_page(path: Path, text: str) -> Page:
    """The same of a text."""
    blocks = tuple(_blocks(MarkdownIt("commonmark").parse(text)))
    chosen = {name: tuple(re.split(r", *", told)) for name, told in _SETTING.findall(text)}
    return Page(path, blocks, **chosen)


def _blocks(tokens: list[Token]) -> Iterator[Block]:
    reason = ""
    for token in tokens:
        line = (token.map or [0])[0] + 1
        if token.type == "html_block":
            for hidden in _HIDDEN.finditer(token.content):
                before = token.content[: hidden.start(2)].count("\n")
                yield Block(_LANGUAGES[hidden[1]], hidden[2], line + before)
            if found := _NOT_RUN.search(token.content):
                reason = " ".join(found[1].split())
        elif token.type == "fence" and not token.info.startswith("{"):
            yield Block(token.info.strip(), token.content, line + 1, reason)
            reason = ""
        elif token.level == 0 and reason:
            raise ValueError(f"line {line}: no block follows {reason!r}")


def pages() -> list[Path]:
    """All pages with code for people to use."""
    docs = ROOT / "docs"
    left_out = [docs / "reference", docs / "_build", docs / "benchmarks"]
    found = sorted(docs.rglob("*.md"))
    kept = [path for path in found if not any(path.is_relative_to(one) for one in left_out)]
    return [ROOT / "README.md", *kept]
