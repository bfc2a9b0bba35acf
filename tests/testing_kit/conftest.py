"""Fixtures of the kit's own tests: its loops are under test here, so no plugin runs them."""

from __future__ import annotations

import pytest

from inboxkit_testing.backends import BackendName


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> BackendName:
    name: BackendName = request.param
    return name


@pytest.fixture(params=["sqlite-inloop", "sqlite+thread", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path, backend: BackendName) -> str:
    match request.param:
        case "sqlite-inloop":
            return f"sqlite+inloop:///{tmp_path}/kit.db"
        case "sqlite+thread":
            return f"sqlite+thread:///{tmp_path}/kit.db"
        case "sqlite":
            return f"sqlite:///{tmp_path}/kit.db"
        case _:
            return request.getfixturevalue("postgres_url")
