"""A virtual clock over real databases, and what can be tested with it."""
