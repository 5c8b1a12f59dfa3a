"""RankRLS: pairwise least squares from additive statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.learn.base import Balance, LinearLearner, check_query_weight, pair_weights
from kinrank.learn.statistics import PairStatistics

_QUERIES_AT_ONCE = 4096


class RankRLS(LinearLearner):
    """Linear learner: regularized least squares on pairs (Pahikkala et al. 2009).

    Minimizes λ/2 |w - w0|² + 1/(2P) Σ (1 - w·(x_i - x_j))² over the pairs of one query with y_i > y_j, without
    materializing pairs.

    Parameters
    ----------
    penalty : float
        λ.
    balance : {"pairs", "queries"}
        Whether every pair or every query has the same weight.
    nonnegative : bool
        Whether to require nonnegative weights, which search engines accept as boosts.
    lower_is_better : list of str, optional
        Features whose weight must not be positive, regardless of `nonnegative`.

    Attributes
    ----------
    coef_ : float64 array of shape (features,)

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [1.0], [2.0]], y=[0, 1, 2], group=[3])
    >>> RankRLS().fit(queries).coef_.round(3)
    array([0.663])

    The best nonnegative weights are not the unconstrained weights clipped at 0:

    >>> queries = QuerySet.from_arrays([[0.0, 0.0], [2.0, 1.0], [1.0, 1.0]], y=[0, 1, 0], group=[3])
    >>> RankRLS().fit(queries).coef_.round(2), RankRLS(nonnegative=True).fit(queries).coef_.round(2)
    (array([ 0.95, -0.87]), array([0.6, 0. ]))
    """

    def __init__(
        self,
        penalty: float = 0.01,
        balance: Balance = "pairs",
        *,
        nonnegative: bool = False,
        lower_is_better: Sequence[str] | None = None,
    ) -> None:
        self.penalty = penalty
        self.balance = balance
        self.nonnegative = nonnegative
        self.lower_is_better = lower_is_better

    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None, prior: ArrayLike | None = None) -> Self:
        """Fit; queries are read block by block, so they can be memory-mapped."""
        total = PairStatistics.from_queries(queries[:0]).sum()
        factor = None if query_weight is None else check_query_weight(query_weight, len(queries))
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            block = slice(start, start + _QUERIES_AT_ONCE)
            part = PairStatistics.from_queries(queries[block])
            weights = pair_weights(part.pairs, self.balance, None if factor is None else factor[block])
            total += part.sum(weights=weights)
        self.coef_ = total.solve(self.penalty, prior, self.signs(queries.feature_names))[0]
        return self

    def signs(self, feature_names: Sequence[str]) -> NDArray[np.int8] | None:
        """Return the required sign of each weight, for `PairStatistics.solve`; None if there are no constraints."""
        if isinstance(self.lower_is_better, str):
            raise ParameterError(
                f"lower_is_better must be a list of feature names, got {self.lower_is_better!r}: "
                f"write [{self.lower_is_better!r}]"
            )
        lower = [] if self.lower_is_better is None else list(self.lower_is_better)
        unknown = [name for name in lower if name not in feature_names]
        if unknown:
            raise ParameterError(
                f"lower_is_better names the unknown feature {unknown[0]!r}: choose from {', '.join(feature_names)}"
            )
        if not self.nonnegative and not lower:
            return None
        signs = np.full(len(feature_names), int(self.nonnegative), dtype=np.int8)
        signs[np.isin(feature_names, lower)] = -1
        return signs
