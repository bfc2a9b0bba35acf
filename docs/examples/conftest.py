"""Tests of the examples: the guides' cases, in virtual time, on every database and both backends."""

from __future__ import annotations

import sys
from pathlib import Path

# The examples import each other's helpers by plain names, as scripts do.
sys.path.insert(0, str(Path(__file__).parent))
