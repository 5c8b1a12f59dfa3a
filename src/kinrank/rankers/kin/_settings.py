"""Check the parameters of a `KinRanker`, and make the parts that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.errors import ParameterError
from kinrank.kin import Describer
from kinrank.kin.blocks import Spec
from kinrank.learn import make_learner
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin._trees import TreeSample
from kinrank.rankers.kin.settings import KinSettings
from kinrank.rankers.knn import KnnRanker

MOST_TREES = 300
"""Most trees of each member, if `trees` is not set."""
MOST_CELLS = 4_096
"""Number of cells from 40,960 queries on, if it is not set."""


class KinParameters(Protocol):
    """The parameters of a `KinRanker` that describe its parts."""

    base: Any
    memory: bool
    keys: Sequence[str] | None
    time_column: str | None
    n_neighbors: int | Literal["auto"]
    local: bool | Literal["auto"]
    trees: str | LambdaMART | None
    describe: Spec | Describer
    group_column: str | None
    seed: int
    settings: KinSettings | Mapping[str, Any] | None


def check_settings(ranker: KinParameters, queries: QuerySet) -> None:
    """Raise on parameters that make no sense for these queries."""
    settings = KinSettings.of(ranker.settings)
    weight_signs(ranker, queries.feature_names)  # raises if a feature is unknown
    tree_settings(ranker)  # raises if they are none
    if ranker.n_neighbors != "auto" and not _whole_from(1, ranker.n_neighbors):
        raise ParameterError(f"n_neighbors must be 'auto' or a whole number from 1, got {ranker.n_neighbors!r}")
    if ranker.local not in (True, False, "auto"):
        raise ParameterError(f"local must be True, False or 'auto', got {ranker.local!r}")
    if not _whole_from(2, settings.n_members):
        raise ParameterError(f"n_members must be a whole number from 2, got {settings.n_members!r}")
    if settings.n_repeats != "auto" and not _whole_from(1, settings.n_repeats):
        raise ParameterError(f"n_repeats must be 'auto' or a whole number from 1, got {settings.n_repeats!r}")
    for name, count in (("n_cells", settings.n_cells), ("tree_queries", settings.tree_queries)):
        if count is not None and not _whole_from(1, count):
            raise ParameterError(f"{name} must be a whole number from 1, or None, got {count!r}")
    if settings.tree_queries is not None and settings.n_cells is None:
        raise ParameterError("tree_queries needs n_cells: only sums over cells are cross-fitted by subtraction")
    if ranker.base is not None and settings.n_cells is not None:
        raise ParameterError("a base needs all candidates in memory: leave out n_cells, or the base")
    groups_of(queries, ranker.group_column)  # raises if there is no such column


def _whole_from(least: int, value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def weight_signs(ranker: KinParameters, feature_names: Sequence[str]) -> NDArray[np.int8] | None:
    """Return the required sign of each weight."""
    settings = KinSettings.of(ranker.settings)
    return RankRLS(nonnegative=settings.nonnegative, lower_is_better=settings.lower_is_better).signs(feature_names)


def knn_part(ranker: KinParameters, n_neighbors: int) -> KnnRanker:
    """Return the local part that keeps every judged query, not fitted."""
    settings = KinSettings.of(ranker.settings)
    return KnnRanker(
        n_neighbors,
        describe=ranker.describe,
        encoder=None,  # queries come with their vectors
        reference=settings.reference,
        scale=settings.scale,
        missing=settings.missing,
    )


def cell_part(ranker: KinParameters) -> CellRanker:
    """Return the local part that learns from sums over cells, not fitted."""
    settings = KinSettings.of(ranker.settings)
    return CellRanker(
        n_cells=settings.n_cells or MOST_CELLS,
        describe=ranker.describe,
        reference=settings.reference,
        scale=settings.scale,
        missing=settings.missing,
    )


def local_part(ranker: KinParameters, n_neighbors: int) -> KnnRanker | CellRanker:
    """Return the local part with k neighbors, not fitted."""
    if KinSettings.of(ranker.settings).n_cells is None:
        return knn_part(ranker, n_neighbors)
    cells: CellRanker = cell_part(ranker).set_params(n_neighbors=n_neighbors)
    return cells


def tree_settings(ranker: KinParameters) -> LambdaMART:
    """Return the settings of the tree models."""
    if ranker.trees is not None:
        trees = make_learner(ranker.trees)
        if not isinstance(trees, LambdaMART):
            raise ParameterError(f"trees must be a LambdaMART, got {ranker.trees!r}")
        return trees
    params = {"feature_fraction": 0.5}
    return LambdaMART(MOST_TREES, n_leaves=15, learning_rate=0.05, min_rows_in_leaf=50, params=params, seed=ranker.seed)


def tree_sample(ranker: KinParameters, n_queries: int) -> TreeSample:
    """Return how to choose the queries that trees learn from, out of about `n_queries`."""
    wanted = KinSettings.of(ranker.settings).tree_queries
    share = 1.0 if wanted is None else wanted / max(n_queries, 1)
    return TreeSample(min(share, 1.0), ranker.group_column, ranker.time_column)
