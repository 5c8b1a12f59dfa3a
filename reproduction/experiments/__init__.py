"""The experiments, one module each: the tasks, and the figures computed from their results."""
