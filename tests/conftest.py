"""What several folders of tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inboxkit_testing.servers import PostgresServer


@pytest.fixture
def postgres_url(inbox_postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty Postgres database of the test's own."""
    with inbox_postgres.database() as url:
        yield url
