"""Single: one model for all queries, the baseline of all local methods."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.learn import make_learner
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.base import Learner, LinearLearner
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers.base import LinearWeights, Ranker, WeightedRanker, exact_weights
from kinrank.rankers.capabilities import Capabilities
from kinrank.store import nest, unnest


class SingleRanker(WeightedRanker, Ranker):
    """One model learned from all judged queries.

    Parameters
    ----------
    learner : {"ranksvm", "rankrls", "lambdamart"} or Learner
        The learner.
    scale : {"standard", "none", "min_max", "l2", "z_score"}
        How features are scaled for a linear learner. The last three normalize the scores of each query as a hybrid
        search does; `weights` are then for normalized scores.
    missing : {"error", "zero", "mean"}
        What a missing feature becomes for a linear learner. LambdaMART reads NaN as it is.

    Attributes
    ----------
    learner_ : Learner
        The fitted learner.
    feature_importances_ : float64 array of shape (features,)
        The share of each feature in what the trees gain. Only with trees; a linear learner has `weights`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.2], [3.0, 0.1], [2.0, 0.9], [5.0, 0.4]])
    >>> ranker = SingleRanker("rankrls").fit(X, y=[0, 1, 0, 1], qid=["a", "a", "b", "b"])
    >>> ranker.predict(X, qid=["a", "a", "b", "b"]).round(2)
    array([-1.22, -0.25,  0.23,  1.24])
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(weights=True, missing=True)

    def __init__(
        self, learner: str | Learner = "ranksvm", *, scale: Scale = "standard", missing: Missing = "mean"
    ) -> None:
        self.learner = learner
        self.scale = scale
        self.missing = missing

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return replace(self._capabilities, weights=make_learner(self.learner).linear)

    def _fit(self, queries: QuerySet) -> None:
        self.learner_ = make_learner(self.learner)
        if not self.learner_.allow_nan:
            self.preparer_ = Preparer(self.scale, self.missing).fit(queries)
            queries = self.preparer_.apply(queries)
        self.learner_.fit(queries)

    def _predict(self, queries: QuerySet) -> Float64:
        X = queries.X if self.learner_.allow_nan else self.preparer_.transform(queries.X, queries)
        return self.learner_.predict(X)

    @property
    def feature_importances_(self) -> Float64:
        """The share of each feature in what the trees gain; only with ``learner="lambdamart"``."""
        check_is_fitted(self)
        if not isinstance(self.learner_, LambdaMART):
            raise AttributeError(f"{type(self.learner_).__name__} has no trees and no feature importances: see weights")
        return self.learner_.feature_importances_

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        if not isinstance(self.learner_, LinearLearner):
            raise ParameterError(
                f"there are no weights: {type(self.learner_).__name__} is not linear; set learner='rankrls'"
            )
        weights = np.tile(self.preparer_.raw_weights(self.learner_.coef_), (len(queries), 1))
        return exact_weights(queries, weights, self.missing)

    def get_state(self) -> State:
        """Return everything learned."""
        if self.learner_.allow_nan:
            return nest(learner=self.learner_.get_state())
        return nest(learner=self.learner_.get_state(), preparer=self.preparer_.get_state())

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.learner_ = make_learner(self.learner).set_state(unnest(state, "learner"))
        if not self.learner_.allow_nan:
            self.preparer_ = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        return self
