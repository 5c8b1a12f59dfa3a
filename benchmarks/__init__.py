"""One module per claim of the docs; `python -m benchmarks NAME` runs it."""
