"""The crash-and-resume machine: Hypothesis drives a `World`, and judges what became of it."""
