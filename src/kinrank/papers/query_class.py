"""QC: classify queries by type and rank each type with its own model (a baseline in Geng et al. 2008)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from kinrank.arrays import Float32, Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.kin import Describer
from kinrank.kin.blocks import Spec
from kinrank.kin.indexes.base import Neighborhoods
from kinrank.learn import make_learner
from kinrank.learn._prepare import Missing, Scale
from kinrank.learn.base import Learner
from kinrank.learn.ranksvm import RankSVM
from kinrank.rankers._local.model import LocalModel, Prior, check_local_settings
from kinrank.rankers.base import LinearWeights, Ranker, WeightedRanker, exact_weights
from kinrank.rankers.capabilities import Capabilities
from kinrank.store import nest, unnest


class QueryClassRanker(WeightedRanker, Ranker):
    """One model per type of query; a query is ranked by the model of its type (QC in Geng et al. 2008, section 4.2.1).

    Parameters
    ----------
    types : str, optional
        The query column with the type of each training query. A logistic classifier learns to predict it from the
        description. Without it, types are found by k-means on the descriptions.
    n_types : int
        The number of types to find by k-means.
    given : bool
        Whether queries to be ranked have the column too. If so, it is used instead of the classifier.
    learner, describe, reference, prior, prior_strength, scale, missing
        As for `KnnRanker`.
    seed : int
        Seed for k-means.

    Attributes
    ----------
    types_ : array
        The types, in the order of `models_`.
    models_ : list of Learner
        One per type; the global model for a type without pairs.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> QueryClassRanker(n_types=2).fit(camps).score(camps)
    1.0
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(weights=True, vectors=True, missing=True)

    def __init__(
        self,
        types: str | None = None,
        *,
        n_types: int = 3,
        given: bool = False,
        learner: str | Learner = "rankrls",
        describe: Spec | Describer = "summaries",
        reference: str | int | None = None,
        prior: Prior = "none",
        prior_strength: float = 0.1,
        scale: Scale = "standard",
        missing: Missing = "mean",
        seed: int = 0,
    ) -> None:
        self.types = types
        self.n_types = n_types
        self.given = given
        self.learner = learner
        self.describe = describe
        self.reference = reference
        self.prior = prior
        self.prior_strength = prior_strength
        self.scale = scale
        self.missing = missing
        self.seed = seed

    @classmethod
    def as_published(cls, types: str, *, reference: str | int | None = "bm25", top: int = 50, **settings: Any) -> Self:
        """Return the paper's QC (section 4.2.1): a classifier of labeled query types, and a Ranking SVM for each type.

        The paper labels its queries (topic distillation, named page finding, homepage finding), and takes the
        classifier from another paper, so `types` names a query column of the training queries. Queries are points, and
        Ranking SVM learns, as in `KnnRanker.as_published`.

        Examples
        --------
        >>> QueryClassRanker.as_published("type", reference="score")
        QueryClassRanker(describe=Describer(reference='score', standardize=False),
                         learner=RankSVM(loss='hinge'), scale='none', types='type')
        """
        published: dict[str, Any] = {
            "learner": RankSVM(loss="hinge"),
            "describe": Describer.as_published(reference, top),
            "scale": "none",
        }
        return cls(types, **published | settings)

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return replace(self._capabilities, weights=make_learner(self.learner).linear)

    def _check_settings(self) -> None:
        check_local_settings(self)
        if self.given and self.types is None:
            raise ParameterError("given=True needs types=, the name of the query column with the types")
        if self.n_types < 1:
            raise ParameterError(f"n_types must be at least 1, got {self.n_types}")

    def _fit(self, queries: QuerySet) -> None:
        self._check_settings()
        self.model_ = LocalModel.fit(queries, self)
        points = self.model_.points(queries)
        if self.types is None:
            k_means = KMeans(min(self.n_types, len(queries)), n_init=10, random_state=self.seed).fit(points)
            self.types_, labels = np.unique(k_means.labels_, return_inverse=True)
            # The nearest center has the largest center·point - |center|²/2, so this is a linear classifier too.
            centers = k_means.cluster_centers_[self.types_].astype(np.float64)
            self.directions_, self.biases_ = centers, -0.5 * np.einsum("ij,ij->i", centers, centers)
        else:
            self.types_, labels = np.unique(self._given_types(queries), return_inverse=True)
            self.directions_, self.biases_ = _logistic(points, labels, len(self.types_))
        self.models_ = self.model_.learn_each(Neighborhoods.of_labels(labels, len(self.types_)), self)

    def classify(self, queries: QuerySet) -> NDArray[Any]:
        """Return the type of each query: predicted, or from the column if ``given=True``."""
        queries = self._queries(queries)
        positions = self._positions(queries)
        if (positions < 0).any():
            unknown = self._given_types(queries)[np.argmax(positions < 0)]
            raise DataError(f"unknown query type {unknown.item()!r}: the training queries have {self.types_.tolist()}")
        return self.types_[positions]

    def _predict(self, queries: QuerySet) -> Float64:
        return self.model_.scores(self._models(queries), queries)

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        return exact_weights(queries, self.model_.raw_weights(self._models(queries)), self.missing)

    def _models(self, queries: QuerySet) -> list[Learner]:
        """Return the model of each query."""
        unknown = self.model_.global_model
        return [self.models_[position] if position >= 0 else unknown for position in self._positions(queries)]

    def _positions(self, queries: QuerySet) -> NDArray[np.int64]:
        """Return the position of each query's type in `types_`; -1 if it was not in training."""
        if not self.given:
            points = self.model_.points(queries)
            predicted: NDArray[np.int64] = np.argmax(points @ self.directions_.T + self.biases_, axis=1)
            return predicted
        types = self._given_types(queries)
        positions = np.searchsorted(self.types_, types).clip(max=len(self.types_) - 1)
        return np.where(self.types_[positions] == types, positions, -1)

    def _given_types(self, queries: QuerySet) -> NDArray[Any]:
        if self.types is None or self.types not in queries.query_columns:
            raise DataError(
                f"the queries have no query column {self.types!r}: there are {sorted(queries.query_columns)}"
            )
        return queries.query_columns[self.types]

    def get_state(self) -> State:
        """Return everything learned."""
        models = nest(**{f"model{i}": model.get_state() for i, model in enumerate(self.models_)})
        types = {"types": self.types_, "directions": self.directions_, "biases": self.biases_}
        return self.model_.get_state() | models | types

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.model_ = LocalModel.from_state(self, state)
        self.types_, self.directions_, self.biases_ = state["types"], state["directions"], state["biases"]
        learner = self.model_.learner
        self.models_ = [clone(learner).set_state(unnest(state, f"model{i}")) for i in range(len(self.types_))]
        return self


def _logistic(points: Float32, labels: NDArray[np.int64], n_types: int) -> tuple[Float64, Float64]:
    """Fit a multinomial logistic classifier and return its directions and biases; zeros for a single type."""
    if n_types == 1:
        return np.zeros((1, points.shape[1])), np.zeros(1)
    fitted = LogisticRegression(max_iter=1000).fit(points, labels)
    if n_types == 2:
        return np.vstack([-fitted.coef_, fitted.coef_]), np.append(-fitted.intercept_, fitted.intercept_)
    return fitted.coef_, fitted.intercept_
