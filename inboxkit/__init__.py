"""Task inboxes in the service's own SQL tables, under trio and asyncio alike."""
