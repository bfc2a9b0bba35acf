"""SQL for PostgreSQL, 12 and newer."""

from .dialect import Postgres

__all__ = ["Postgres"]
