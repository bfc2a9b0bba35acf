"""Kinds of failure that users of such queues met, each as a test of its whole kind."""

from __future__ import annotations

import sys
from pathlib import Path

# Tests are imported by path, so their helpers are found by plain names.
sys.path.insert(0, str(Path(__file__).parent))
