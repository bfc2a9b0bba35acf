"""Where the tests of claim forms run.

`cells` is the table of what there is, `hosts` keeps databases open over many tests, and `on_database`
has the bench of tests that look closer at one form than the conformance suite does.
"""
