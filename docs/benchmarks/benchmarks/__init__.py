"""How fast inboxkit is, beside loops written by hand for the same drivers: ``python -m benchmarks``."""
