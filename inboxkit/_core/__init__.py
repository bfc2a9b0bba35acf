"""Pure rules of the queue: no clock, no database, no await."""
