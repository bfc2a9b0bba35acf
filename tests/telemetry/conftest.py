"""Tests of telemetry: with the real SDKs, on SQLite and Postgres, asyncio and trio, in virtual time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Tests are imported by path, so their helpers are found by plain names.
sys.path.insert(0, str(Path(__file__).parent))

pytest.importorskip("prometheus_client", reason="it is the extra prometheus")
pytest.importorskip("opentelemetry.sdk", reason="it is in the extra all")
