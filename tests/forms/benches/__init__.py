"""Where the tests of claim forms run: one bench for each form on each database, and on the model.

`cells` is the table of what there is and `rules` says where the forms differ. A `bench` is one table
with a clock that the test moves; `on_database` and `on_model` make it real. `suite` runs a test on all
of them.
"""
