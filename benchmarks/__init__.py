"""Benchmarks: one module for each claim in the docs. ``python -m benchmarks NAME`` runs one."""
