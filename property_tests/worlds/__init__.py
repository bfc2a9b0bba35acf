"""Small worlds for the property tests: what is generated, what runs it, and what judges the run.

`schedule` and `strategies` say what is to happen, `machine` makes it happen to the library, `trail`
reads what the database saw, and `oracle` judges that by the rules alone: it imports nothing of the
library but its events.
"""
