"""What an operator asks of a service's tables: the command line's work, without its looks."""
