"""The experiments, one module each: pieces of work, and the figures they make together."""
