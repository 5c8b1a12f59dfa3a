"""Cross-fitting: local rankers that have seen neither a judged query nor its group."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin.sample import JudgedBlocks
from kinrank.rankers.knn.ranker import KnnRanker


@dataclass(frozen=True, eq=False)
class FittedWithout:
    """Fits the local ranker on the queries of the other folds."""

    settings: KnnRanker
    """The local ranker, not fitted."""
    kept: JudgedBlocks
    """The judged queries."""
    folds: list[Int64]
    """The fold of each query, for each repeat of the cross-fitting."""

    def __call__(self, repeat: int, held_out: int) -> KnnRanker:
        """Return the local ranker that has not seen a fold."""
        return copy(self.settings).fit(self.kept.take(np.flatnonzero(self.folds[repeat] != held_out)))


@dataclass(frozen=True, eq=False)
class SubtractedFold:
    """Subtracts the sums of a fold from the sums over all judged queries: sums add up, so nothing is fitted again.

    Scaling, description and cells stay those of all judged queries; they do not depend on grades.
    """

    whole: CellRanker
    """The local ranker that has seen all queries."""
    sums: list[list[State]]
    """The packed cells of each fold, for each repeat of the cross-fitting: ``sums[repeat][fold]``."""

    def __call__(self, repeat: int, held_out: int) -> CellRanker:
        """Return the local ranker that has not seen a fold."""
        return self.whole.without(self.sums[repeat][held_out])


def rows_of(queries: QuerySet, chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows belong to the chosen queries."""
    rows: NDArray[np.bool_] = np.repeat(chosen, queries.sizes)
    return rows
