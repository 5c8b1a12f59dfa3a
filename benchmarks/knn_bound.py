"""Theorem 1's bound on the loss difference between two models is far from tight.

`reproduction.experiments.bound` describes the setup.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Return medians and maxima over the test queries."""
    return reproduce("bound")
