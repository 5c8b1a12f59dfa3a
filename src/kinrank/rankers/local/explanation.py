"""Explanations: why a query is ranked as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64


@dataclass(frozen=True, eq=False)
class Explanation:
    """How one query was ranked."""

    qid: Any
    """The query."""
    neighbors: NDArray[Any]
    """The judged queries it learned from, nearest first. A cell is represented by one of its queries, as text."""
    distances: Float64
    """The distance to each of them, or to the center of its cell."""
    counts: Float64
    """How many judged queries each represents: 1, or what its cell contributed."""
    unusual: float
    """The share of judged queries whose nearest neighbor is nearer than that of this query: 0.5 for an ordinary query,
    1.0 for one that is farther from the judged queries than any of them from the others.
    """
    feature_names: tuple[str, ...]
    """The features."""
    weights: Float64 | None
    global_weights: Float64 | None
    """The query's own weights and those of the global model, per unit of each feature; None if the model is not linear.
    """
    spread: Float64
    """The standard deviation of each feature among the candidates."""

    @property
    def effects(self) -> tuple[Float64, Float64] | None:
        """What a standard deviation of each feature adds to a score, by the query's own and by the global weights.

        Unlike weights, effects of different features are on one scale. None if the model is not linear.
        """
        if self.weights is None or self.global_weights is None:
            return None
        return self.weights * self.spread, self.global_weights * self.spread

    @property
    def shares(self) -> dict[str, float]:
        """The share of each ingredient of the ranker in the scores; empty if there is only one."""
        return {}

    def __str__(self) -> str:
        cells = "" if np.all(self.counts == 1) else f" in {len(self.neighbors)} cells"
        lines = [
            f"query {self.qid}: learned from {self.counts.sum():.0f} judged queries{cells}, nearest {self._nearest()}",
            f"  farther from known queries than {self.unusual:.0%} of them are from each other",
        ]
        if self.effects is not None:
            own, everywhere = self.effects
            lines += [
                f"  {self.feature_names[f]}: effect {own[f]:+.3g}, globally {everywhere[f]:+.3g}"
                for f in np.argsort(-np.abs(self.effects).max(axis=0), kind="stable")[:5]
            ]
        return "\n".join(lines)

    def _nearest(self) -> str:
        named = zip(self.neighbors[:3].tolist(), self.distances[:3], strict=True)
        return ", ".join(f"{neighbor} ({distance:.2f})" for neighbor, distance in named) or "none"


def candidate_moments(rows: Float32) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each feature over its finite values; 0 if it has none."""
    values = rows.astype(np.float64)
    finite = np.isfinite(values)
    counts = np.maximum(finite.sum(axis=0), 1)
    means = np.where(finite, values, 0.0).sum(axis=0) / counts
    deviations = np.where(finite, values - means, 0.0)
    return means, np.sqrt((deviations**2).sum(axis=0) / counts)
