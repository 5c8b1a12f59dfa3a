"""SER and SSER: base rankers weighted by their agreement with the grades, and by the candidates of the query."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.learn.ensembles import (
    DISTANCES,
    Distance,
    Normalize,
    agreement,
    matrix_distances,
    normalize,
    query_weights,
)
from kinrank.learn.hinge_qp import HingeSolution, solve_hinge_qp
from kinrank.learn.prepare import Missing, Preparer
from kinrank.rankers.base import Ranker, WeightedRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.linear_weights import LinearWeights, exact_weights
from kinrank.store import nest, unnest


class EnsembleRanker(WeightedRanker, Ranker):
    """Base rankers combined with nonnegative weights (Hoi and Jin, AAAI 2008).

    With ``gamma=0`` this is SER: one weight vector for all queries (Eq. 6). With ``gamma > 0`` it is SSER: every query
    has its own weights, chosen so that similar candidates also get similar scores (Eq. 10). This needs the candidates
    of the query but no judgments.

    Parameters
    ----------
    gamma : float
        How much the similarity of candidates counts. 0.5 in the paper; choose it on validation queries.
    columns : sequence of str or int, or None
        Columns of X to use as base rankers, by name or position. None means all columns, or no columns if `rankers` are
        given.
    rankers : sequence of fitted rankers, or None
        Further base rankers, fitted on the same features, preferably on other queries than the ensemble.
    normalize : {"minmax", "standard", "none"}
        How the scores of a base ranker are scaled within each query: to the range 0 to 1, to mean 0 and standard
        deviation 1, or not at all.
    orient : bool
        Whether to reverse base rankers that rank worse documents first in the training queries, such as the length of a
        URL. With False, as in the paper, such a ranker gets no weight.
    C : float
        The cost of disagreement with the grades of a query.
    theta : float
        θ, the weight of "relevant before possibly relevant" compared with 1 for "relevant before irrelevant".
    delta : float
        δ, the smoothing of the ranking matrix.
    similarity : {"trace", "spectral", "bregman"}
        How the order of a base ranker is compared with the grades: tr(A'R) (Eq. 6), or exp(-d(A, R)/λ) with the
        spectral norm or the squared Frobenius norm as d (Eq. 7). The last two compare matrices with one row per
        candidate, so they are slow, and they do not support row weights.
    similarity_scale : float or None
        λ of Eq. 7. None means the median distance of the training queries.
    n_neighbors : int
        Number of most similar candidates that each candidate is connected to.
    relevant_from : float or None
        The lowest relevant grade (+1). None means the highest grade of the training queries.
    possible_from : float or None
        The lowest possibly relevant grade (0); lower grades are irrelevant (-1). None means all grades above 0.
    missing : {"error", "zero", "mean"}
        What a missing feature becomes.

    Attributes
    ----------
    coef_ : float64 array of shape (base rankers,)
        SER's weights, for normalized scores: columns first, then rankers.
    sign_ : float64 array of shape (base rankers,)
        -1 for reversed base rankers, 1 for others.
    solution_ : HingeSolution
        SER's weights and the multipliers that the weights of each query start from.
    agreement_ : float64 array of shape (queries, base rankers)
        The agreement of each base ranker with the grades of each training query (b in the paper), without queries for
        which it is 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.2], [3.0, 0.1], [2.0, 0.9], [5.0, 0.4]])
    >>> ranker = EnsembleRanker().fit(X, y=[0, 1, 0, 1], qid=["a", "a", "b", "b"])
    >>> ranker.coef_.round(6)
    array([1., 1.])
    >>> ranker.predict(X, qid=["a", "a", "b", "b"]).round(6)
    array([0., 2., 0., 2.])
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(weights=True, missing=True)

    def __init__(
        self,
        gamma: float = 0.0,
        *,
        columns: Sequence[str | int] | None = None,
        rankers: Sequence[Ranker] | None = None,
        normalize: Normalize = "minmax",
        orient: bool = True,
        C: float = 1.0,
        theta: float = 0.5,
        delta: float = 1.0,
        similarity: Literal["trace"] | Distance = "trace",
        similarity_scale: float | None = None,
        n_neighbors: int = 5,
        relevant_from: float | None = None,
        possible_from: float | None = None,
        missing: Missing = "mean",
    ) -> None:
        self.gamma = gamma
        self.columns = columns
        self.rankers = rankers
        self.normalize = normalize
        self.orient = orient
        self.C = C
        self.theta = theta
        self.delta = delta
        self.similarity = similarity
        self.similarity_scale = similarity_scale
        self.n_neighbors = n_neighbors
        self.relevant_from = relevant_from
        self.possible_from = possible_from
        self.missing = missing

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return replace(self._capabilities, weights=not self.rankers)

    def _fit(self, queries: QuerySet) -> None:
        self._check_settings(queries)
        self.columns_ = self._find_columns(queries)
        self.preparer_ = Preparer("none", self.missing).fit(_columns_of(queries, self.columns_))
        self.sign_: Float64 = np.ones(len(self.columns_) + len(self.rankers or ()))
        b = self._agreement(queries)
        if self.orient and np.any(b.sum(axis=0) < 0.0):
            self.sign_ = np.where(b.sum(axis=0) < 0.0, -1.0, 1.0)
            b = self._agreement(queries)
        if self.similarity != "trace":
            b = self._matrix_similarity(queries, self.similarity)
        self.agreement_: Float64 = b[np.any(b != 0.0, axis=1)]
        self.solution_ = solve_hinge_qp(np.eye(b.shape[1]), self.agreement_, self.C)
        self.coef_: Float64 = self.solution_.w
        _check_solved(self.solution_.residual)
        if not np.any(self.coef_):
            warnings.warn(
                "no base ranker agrees with the grades, so all weights and scores are 0: use other base rankers, or "
                "set orient=True",
                UserWarning,
                stacklevel=3,
            )

    def _predict(self, queries: QuerySet) -> Float64:
        scores, _ = self._normalized(queries)
        weights = self._base_weights(scores, queries)
        combined: Float64 = np.einsum("ij,ij->i", scores, weights[queries.query_of_row])
        return combined

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        if self.rankers:
            raise ParameterError("there are no weights for features because rankers= are combined: use columns= only")
        scores, factor = self._normalized(queries)
        weights = np.zeros((len(queries), queries.n_features))
        weights[:, self.columns_] = self._base_weights(scores, queries) * factor * self.sign_
        return exact_weights(queries, weights, self.missing)

    def get_state(self) -> State:
        """Return everything learned, including the states of the base rankers."""
        solution = self.solution_
        arrays: State = {
            "columns": self.columns_,
            "sign": self.sign_,
            "agreement": self.agreement_,
            "w": solution.w,
            "alpha": solution.alpha,
            "eta": solution.eta,
            "residual": np.array(solution.residual),
            "n_steps": np.array(solution.n_steps),
        }
        rankers = {f"ranker{i}": ranker.get_state() for i, ranker in enumerate(self.rankers or ())}
        return nest(ensemble=arrays, preparer=self.preparer_.get_state(), **rankers)

    def set_state(self, state: State) -> Self:
        """Restore everything learned, also in `rankers`."""
        # Copied from the memory map: Numba would compile again for read-only arrays.
        arrays = {name: np.array(array) for name, array in unnest(state, "ensemble").items()}
        self.columns_, self.sign_, self.agreement_ = arrays["columns"], arrays["sign"], arrays["agreement"]
        self.solution_ = HingeSolution(
            arrays["w"], arrays["alpha"], arrays["eta"], float(arrays["residual"]), int(arrays["n_steps"])
        )
        self.coef_ = self.solution_.w
        self.preparer_ = Preparer("none", self.missing).set_state(unnest(state, "preparer"))
        for i, ranker in enumerate(self.rankers or ()):
            ranker.feature_names_, ranker.n_features_in_ = self.feature_names_, self.n_features_in_
            ranker.set_state(unnest(state, f"ranker{i}"))
        return self

    def __sklearn_clone__(self) -> Self:
        # Base rankers are fitted by the caller; the default clone would return them unfitted.
        return type(self)(**self.get_params(deep=False))

    def _check_settings(self, queries: QuerySet) -> None:
        for name, value in (("gamma", self.gamma), ("theta", self.theta)):
            if not 0 <= value < np.inf:
                raise ParameterError(f"{name} must be a number from 0, got {value!r}")
        for name, value in (("C", self.C), ("delta", self.delta)):
            if not 0 < value < np.inf:
                raise ParameterError(f"{name} must be a positive number, got {value!r}")
        if self.n_neighbors < 1:
            raise ParameterError(f"n_neighbors must be at least 1, got {self.n_neighbors!r}")
        if self.similarity not in ("trace", *DISTANCES):
            raise ParameterError(f"similarity must be 'trace', 'spectral' or 'bregman', got {self.similarity!r}")
        if self.similarity_scale is not None and not 0 < self.similarity_scale < np.inf:
            raise ParameterError(f"similarity_scale must be a positive number or None, got {self.similarity_scale!r}")
        if self.normalize not in get_args(Normalize):
            raise ParameterError(f"normalize must be 'minmax', 'standard' or 'none', got {self.normalize!r}")
        for i, ranker in enumerate(self.rankers or ()):
            check_is_fitted(ranker, msg=f"rankers[{i}] is not fitted: fit it first, preferably on other queries")
            if ranker.feature_names_ != queries.feature_names:
                raise DataError(
                    f"rankers[{i}] was fitted on features {list(ranker.feature_names_)}, the ensemble has "
                    f"{list(queries.feature_names)}: fit both on the same features"
                )

    def _find_columns(self, queries: QuerySet) -> NDArray[np.int64]:
        if self.columns is None:
            return np.arange(0 if self.rankers else queries.n_features)
        names = {name: i for i, name in enumerate(queries.feature_names)}
        positions = [names.get(column, -1) if isinstance(column, str) else column for column in self.columns]
        for column, i in zip(self.columns, positions, strict=True):
            if not 0 <= i < queries.n_features:
                raise ParameterError(
                    f"columns contains {column!r}, which is not one of the {queries.n_features} features: "
                    f"{', '.join(queries.feature_names)}"
                )
        if not positions and not self.rankers:
            raise ParameterError("there is no base ranker: set columns or rankers, or leave both out")
        return np.array(positions, dtype=np.int64)

    def _agreement(self, queries: QuerySet) -> Float64:
        """Return the agreement of each base ranker with the grades of each query."""
        scores, labels, offsets = self._base_scores(queries), self._labels(queries), np.array(queries.offsets)
        weights = queries.sample_weight
        return agreement(scores, labels, offsets, theta=self.theta, delta=self.delta, weights=weights)

    def _matrix_similarity(self, queries: QuerySet, distance: Distance) -> Float64:
        """Return exp(-d(A, R)/λ) of each base ranker and query (Eq. 7); 0 for queries that prefer no document."""
        if queries.sample_weight is not None:
            raise ParameterError(f"similarity={distance!r} does not support row weights: use 'trace', or no weights")
        labels = self._labels(queries)
        distances = matrix_distances(
            self._base_scores(queries), labels, queries.offsets, distance, theta=self.theta, delta=self.delta
        )
        relevant = np.maximum.reduceat(labels, queries.offsets[:-1]) == 1
        judged = relevant & (np.minimum.reduceat(labels, queries.offsets[:-1]) < 1)
        scale = self.similarity_scale
        if scale is None:
            scale = float(np.median(distances[judged])) if judged.any() else 1.0
        similar: Float64 = np.exp(-distances / scale) * judged[:, None]
        return similar

    def _labels(self, queries: QuerySet) -> NDArray[np.int8]:
        """Return +1, 0 or -1 for each candidate: relevant, possibly relevant, irrelevant."""
        relevant = queries.grades.max() if self.relevant_from is None else self.relevant_from
        possible = queries.grades > 0 if self.possible_from is None else queries.grades >= self.possible_from
        labels = np.where(queries.grades >= relevant, 1, np.where(possible, 0, -1))
        return labels.astype(np.int8)

    def _base_scores(self, queries: QuerySet) -> Float64:
        """Return one column of scores per base ranker; higher is better."""
        selected = _columns_of(queries, self.columns_)
        scores = np.empty((queries.n_rows, len(self.sign_)))
        scores[:, : len(self.columns_)] = self.preparer_.transform(selected.X, selected)
        for i, ranker in enumerate(self.rankers or (), start=len(self.columns_)):
            scores[:, i] = ranker.predict(queries)
        scores *= self.sign_
        return scores

    def _normalized(self, queries: QuerySet) -> tuple[Float64, Float64]:
        """Return the scaled base scores, and the factor of each query and base ranker."""
        return normalize(self._base_scores(queries), queries.offsets, self.normalize)

    def _base_weights(self, scores: Float64, queries: QuerySet) -> Float64:
        """Return the weights of each query, for normalized scores."""
        if self.gamma == 0:
            return np.tile(self.coef_, (len(queries), 1))
        shared = self.solution_
        weights, residuals = query_weights(
            scores,
            np.array(queries.offsets),
            float(self.gamma),
            int(self.n_neighbors),
            self.agreement_,
            float(self.C),
            shared.w,
            shared.alpha,
            shared.eta,
        )
        _check_solved(residuals.max(initial=0.0))
        return np.asarray(weights)


def _columns_of(queries: QuerySet, columns: NDArray[np.int64]) -> QuerySet:
    names = tuple(queries.feature_names[i] for i in columns)
    return queries.replace(X=queries.X[:, columns], feature_names=names)


def _check_solved(residual: float) -> None:
    if not residual <= 1e-6:
        warnings.warn(
            f"the weights are not optimal (residual {residual:.1e} of a margin): check for extreme grades, C or gamma",
            ConvergenceWarning,
            stacklevel=4,
        )
