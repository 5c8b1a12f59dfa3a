"""Explanations: why a query is ranked as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64


@dataclass(frozen=True, eq=False)
class Explanation:
    """How one query was ranked.

    Attributes
    ----------
    qid
        The query.
    neighbors : array
        The judged queries it learned from, nearest first. A cell is represented by one of its queries, as text.
    distances : float64 array
        The distance to each of them, or to the center of its cell.
    counts : float64 array
        How many judged queries each represents: 1, or what its cell contributed.
    unusual : float
        The share of judged queries whose nearest neighbor is nearer than that of this query: 0.5 for an ordinary
        query, 1.0 for one that is farther from the judged queries than any of them from the others.
    feature_names : tuple of str
        The features.
    weights, global_weights : float64 array, or None
        The query's own weights and those of the global model, per unit of each feature; None if the model is not
        linear.
    """

    qid: Any
    neighbors: NDArray[Any]
    distances: Float64
    counts: Float64
    unusual: float
    feature_names: tuple[str, ...]
    weights: Float64 | None
    global_weights: Float64 | None

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
        if self.weights is not None and self.global_weights is not None:
            change = self.weights - self.global_weights
            lines += [
                f"  {self.feature_names[f]}: weight {self.weights[f]:+.3g}, globally {self.global_weights[f]:+.3g}"
                for f in np.argsort(-np.abs(change))[:5]
            ]
        return "\n".join(lines)

    def _nearest(self) -> str:
        named = zip(self.neighbors[:3].tolist(), self.distances[:3], strict=True)
        return ", ".join(f"{neighbor} ({distance:.2f})" for neighbor, distance in named) or "none"
