"""A row that is to be inserted: its description and the values that the caller gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .spec import InboxSpec

__all__ = ["NewRow"]


@dataclass(frozen=True, slots=True)
class NewRow:
    """What `insert_rows` and `publish` write: made by `Row.of` (through its class) or `InboxSpec.of`."""

    spec: InboxSpec
    values: Mapping[str, Any]
    """By column name, as Python values, defaults applied. Columns left out are the database's."""
