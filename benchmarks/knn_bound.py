"""Theorem 1's bound on the loss difference between two models, beside the differences measured: far from tight.

RankSVM with the plain hinge, λ = 0.01, generated intents (300 + 40 queries, 20 features), k = 100. For each test query
the model of KNN Online and that of Offline-2 score its pairs; the largest difference of their hinge losses is held
against κ²/λ · γ, κ the length of the longest pair difference.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Medians and maxima over test queries."""
    return reproduce("bound")
