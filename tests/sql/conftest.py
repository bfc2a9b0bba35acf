"""Text that is compared with files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare text with a file, so that a change of SQL is seen in review.

    INBOXKIT_UPDATE_GOLDEN=1 writes the files anew.
    """

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("INBOXKIT_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        kept = path.read_text() if path.exists() else ""
        if kept != text:
            lines = (kept.splitlines(), text.splitlines())
            diff = "\n".join(difflib.unified_diff(*lines, str(path), "now", lineterm=""))
            pytest.fail(f"{name} has changed; INBOXKIT_UPDATE_GOLDEN=1 accepts it\n{diff}")

    return compare
