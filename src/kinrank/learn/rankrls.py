"""RankRLS: pairwise least squares, the learner whose statistics add."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Balance, LinearLearner, as_prior, check_query_weight, pair_weights
from kinrank.learn.statistics import PairStatistics

_QUERIES_AT_ONCE = 4096


class RankRLS(LinearLearner):
    """Linear weights by regularised least squares on pairs (METHODS: section 1; Pahikkala et al. 2009).

    Minimises λ/2 |w - w0|² + 1/(2P) Σ (1 - w·(x_i - x_j))² over the pairs with y_i > y_j of one query, without
    ever making a pair.

    Parameters
    ----------
    penalty : float
        λ.
    balance : {"pairs", "queries"}
        Whether every pair or every query weighs the same.

    Attributes
    ----------
    coef_ : float64 array of shape (features,)

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [1.0], [2.0]], y=[0, 1, 2], group=[3])
    >>> RankRLS().fit(queries).coef_.round(3)
    array([0.663])
    """

    def __init__(self, penalty: float = 0.01, balance: Balance = "pairs") -> None:
        self.penalty = penalty
        self.balance = balance

    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None, prior: ArrayLike | None = None) -> Self:
        """Learn; queries are read block by block, so they may lie on disk."""
        total = None
        factor = None if query_weight is None else check_query_weight(query_weight, len(queries))
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            block = slice(start, start + _QUERIES_AT_ONCE)
            part = PairStatistics.of(queries[block])
            weights = pair_weights(part.pairs, self.balance, None if factor is None else factor[block])
            summed = part.sum(weights=weights)
            total = summed if total is None else total + summed
        center = as_prior(prior, queries.n_features)
        self.coef_ = center if total is None else total.solve(self.penalty, center)[0]
        return self
