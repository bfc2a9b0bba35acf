"""SQL as text and parameters: no driver, no await."""
