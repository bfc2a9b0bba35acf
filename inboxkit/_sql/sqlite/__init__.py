"""SQL for SQLite, 3.35 and newer."""

from .dialect import Sqlite

__all__ = ["Sqlite"]
