"""Choose the number of cells on validation queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.rankers._local.choose import NeighborChoice, choose_neighbors
from kinrank.rankers.cells.ranker import CellRanker


@dataclass(frozen=True)
class CellChoice:
    """The best number of cells on validation queries."""

    n_cells: int
    """The best number of cells."""
    ranker: CellRanker
    """The ranker fitted with it, and with the best k and prior for it."""
    quality: dict[int, float]
    """The measure of every number of cells, each with its own best k and prior."""
    neighbors: dict[int, NeighborChoice]
    """The best k and prior for each number of cells."""


def choose_cells(
    ranker: CellRanker,
    train: QuerySet,
    queries: QuerySet,
    n_cells: Sequence[int],
    n_neighbors: Sequence[int],
    *,
    prior_strengths: Sequence[float | None] = (None,),
    measure: Measure = NDCG @ 10,
) -> CellChoice:
    """Fit with every number of cells, and try every k and prior on judged queries that are not in training.

    Parameters
    ----------
    ranker
        The settings; it is not changed.
    train
        Training queries.
    queries
        Validation queries.
    n_cells
        The numbers of cells to try. The smallest of equally good ones wins.
    n_neighbors, prior_strengths, measure
        See `choose_neighbors`.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=80, seed=0)
    >>> choose_cells(CellRanker(), camps[:60], camps[60:], [1, 2, 6], [10]).n_cells
    2
    """
    if not len(n_cells):
        raise ParameterError("n_cells must be a list of whole numbers from 1, got []")
    fitted: dict[int, CellRanker] = {}
    choices: dict[int, NeighborChoice] = {}
    for count in sorted(set(n_cells)):
        fitted[count] = clone(ranker).set_params(n_cells=count).fit(train)
        choices[count] = choose_neighbors(
            fitted[count], queries, n_neighbors, prior_strengths=prior_strengths, measure=measure
        )
    quality = {count: max(choice.quality.values()) for count, choice in choices.items()}
    best = max(quality, key=quality.__getitem__)
    return CellChoice(best, choices[best].apply(fitted[best]), quality, choices)
