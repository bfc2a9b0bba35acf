"""What the pytest plugin is made of; nothing here imports an event loop or inboxkit until a test runs."""
