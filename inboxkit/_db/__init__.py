"""Drivers: the one place that talks to a database, and the one that knows asyncio or trio by name."""
