"""RankRLS: pairwise least squares, the learner whose statistics add."""

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
    """Linear weights by regularized least squares on pairs (METHODS: section 1; Pahikkala et al. 2009).

    Minimizes λ/2 |w - w0|² + 1/(2P) Σ (1 - w·(x_i - x_j))² over the pairs with y_i > y_j of one query, without
    ever making a pair.

    Parameters
    ----------
    penalty : float
        λ.
    balance : {"pairs", "queries"}
        Whether every pair or every query weighs the same.
    nonnegative : bool
        Whether weights must not be negative: what search engines accept as boosts.
    lower_is_better : list of str, optional
        Features whose weight must not be positive, whatever `nonnegative` says of the others.

    Attributes
    ----------
    coef_ : float64 array of shape (features,)

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [1.0], [2.0]], y=[0, 1, 2], group=[3])
    >>> RankRLS().fit(queries).coef_.round(3)
    array([0.663])

    The best of the weights that are not negative is not the best of all with the negative ones cut off:

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
        """Learn; queries are read block by block, so they may lie on disk."""
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
        """The sign of each weight, as `PairStatistics.solve` takes them; None where any will do."""
        if isinstance(self.lower_is_better, str):
            raise ParameterError(
                f"lower_is_better must be a list of feature names, got {self.lower_is_better!r}: "
                f"write [{self.lower_is_better!r}]"
            )
        lower = [] if self.lower_is_better is None else list(self.lower_is_better)
        unknown = [name for name in lower if name not in feature_names]
        if unknown:
            raise ParameterError(f"lower_is_better names {unknown[0]!r}; the features are {', '.join(feature_names)}")
        if not self.nonnegative and not lower:
            return None
        signs = np.full(len(feature_names), int(self.nonnegative), dtype=np.int8)
        signs[np.isin(feature_names, lower)] = -1
        return signs
