"""The running service, over ports alone: no SQL and no driver in here."""
