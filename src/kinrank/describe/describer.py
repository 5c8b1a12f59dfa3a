"""Describer: turn queries into points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator, TransformerMixin, clone

from kinrank.arrays import Float32, Float64
from kinrank.data.query_rows import feature_position
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import VECTORS, QueryVectors
from kinrank.describe.blocks import Spec, block_names, check_row_order, parse_blocks, raw_blocks
from kinrank.errors import DataError, ParameterError
from kinrank.registry import Registry

# --- scaling and principal components of descriptions -----------------------------------------------------------------


def moments(raw: Float64) -> tuple[Float64, Float64]:
    """Return the mean and 1 / standard deviation of each column, ignoring NaN; the latter is 0 for constant columns."""
    present = ~np.isnan(raw)
    counts = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, raw, 0.0).sum(axis=0) / counts
    deviation = np.sqrt((np.where(present, raw - mean, 0.0) ** 2).sum(axis=0) / counts)
    # A deviation below the rounding of float32 features is noise.
    varies = deviation > 1e-7 * np.abs(mean)
    return mean, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


def common_scale(scale: Float64) -> Float64:
    """Return one scale for all values of a block: 1 / the root mean square of their standard deviations.

    The values of a vector have one unit, and their variances say how much each direction counts. Scaling them alike
    keeps that, and makes distances independent of the basis in which an encoder writes its vectors.

    Examples
    --------
    >>> common_scale(np.array([1.0, 1 / 7, 0.0])).round(3).tolist()
    [0.2, 0.2, 0.0]
    """
    varies = scale > 0
    if not varies.any():
        return scale
    return np.where(varies, np.mean(scale[varies] ** -2.0) ** -0.5, 0.0)


def block_scale(scale: Float64, weight: float) -> Float64:
    """Return `scale` times block weight / sqrt(block size), counting only values that vary."""
    varying = int(np.count_nonzero(scale))
    scaled: Float64 = scale * (weight / max(varying, 1) ** 0.5)
    return scaled


def components(points: Float64, n_components: int | Mapping[str, int], widths: Mapping[str, int]) -> Float64:
    """Return the map to principal components, of all blocks together or of the named blocks only."""
    if not isinstance(n_components, Mapping):
        return principal(points, n_components)
    unknown = n_components.keys() - widths.keys()
    if unknown:
        raise ParameterError(f"n_components names unknown blocks {sorted(unknown)}: the blocks are {list(widths)}")
    maps = []
    start = 0
    for block, width in widths.items():
        part = points[:, start : start + width]
        maps.append(principal(part, n_components[block]) if block in n_components else np.eye(width))
        start += width
    return block_diag(*maps)


def principal(points: Float64, count: int) -> Float64:
    """Return the `count` directions of largest variance as columns, or all if there are fewer.

    Examples
    --------
    >>> abs(principal(np.array([[0.0, 1.0], [0.0, -1.0], [0.1, 0.0]]), 1)).round(2).tolist()
    [[0.0], [1.0]]
    """
    if count < 1:
        raise ParameterError(f"n_components must be at least 1, got {count}")
    centered = points - points.mean(axis=0)
    _, directions = np.linalg.eigh(centered.T @ centered)
    chosen: Float64 = directions[:, ::-1][:, :count]
    return chosen


# --- learned metrics: linear maps that bring queries with similar models close together -------------------------------
#
# A metric has ``fit(points, targets)``, which sets ``map_``, and ``transform(points)``. The target of a training query
# stands for its model: its pairwise moment b_q / p (see RankRLS) or the weights of its local model. Both metrics return
# as many dimensions as there are targets, so searching a description of hundreds of values costs no more than one of
# dozens.


METRICS = Registry(
    "metric",
    {"ridge": "kinrank.describe.describer:RidgeMetric", "nca": "kinrank.describe.describer:NCAMetric"},
)


class RidgeMetric(BaseEstimator):
    """Distance between targets predicted by ridge regression.

    Parameters
    ----------
    strength
        Ridge penalty, in units of the mean variance of the dimensions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> points = rng.normal(size=(200, 3))
    >>> metric = RidgeMetric(strength=0.1).fit(points, points[:, :1])  # only the first dimension matters
    >>> np.abs(metric.map_).argmax()
    np.int64(0)
    """

    def __init__(self, strength: float = 10.0) -> None:
        self.strength = strength

    def fit(self, points: Float64, targets: Float64) -> Self:
        """Solve (P'P + strength v n I) map = P' targets, v being the mean variance."""
        if not self.strength > 0:
            raise ParameterError(f"strength must be above 0, got {self.strength}")
        centered, centered_targets = _center(points, targets)
        gram = centered.T @ centered
        ridge = self.strength * max(np.trace(gram) / len(gram), np.finfo(np.float64).tiny)
        self.map_: Float64 = np.linalg.solve(gram + ridge * np.eye(len(gram)), centered.T @ centered_targets)
        return self

    def transform(self, points: Float64) -> Float64:
        """Map points to the learned space."""
        return points @ self.map_


class NCAMetric(BaseEstimator):
    """Neighborhood components analysis for vector targets: a query's target is predicted from its neighbors'.

    Minimizes Σ_i |t_i - Σ_j p_ij t_j|², p_ij ∝ exp(-|L x_i - L x_j|²) over j ≠ i (Weinberger and Tesauro, 2007;
    NCA's softmax with regression in place of classes), starting from the ridge map, by Adam over batches.

    Parameters
    ----------
    steps
        Number of gradient steps.
    batch
        Queries per step; a step costs batch² times the number of dimensions.
    rate
        Learning rate, relative to the mean size of the map's entries.
    n_effective
        Effective number of neighbors in a batch, (Σ p)² / Σ p², at the start; it sets the scale of the map.
    random_state
        Random seed of the batches.
    """

    def __init__(
        self,
        steps: int = 100,
        batch: int = 1500,
        rate: float = 0.02,
        n_effective: float = 60.0,
        random_state: int = 0,
    ) -> None:
        self.steps = steps
        self.batch = batch
        self.rate = rate
        self.n_effective = n_effective
        self.random_state = random_state

    def fit(self, points: Float64, targets: Float64) -> Self:
        """Fit the map by gradient descent from the ridge map."""
        x, t = _center(points, targets)
        t = t / max(np.sqrt((t * t).sum(axis=1).mean()), np.finfo(np.float64).tiny)
        rng = np.random.default_rng(self.random_state)
        size = min(self.batch, len(x))
        linear = RidgeMetric(strength=1.0).fit(x, t).map_
        linear = linear * self._scale(x[rng.choice(len(x), size, replace=False)] @ linear)
        unit = self.rate * np.abs(linear).mean()
        momentum, variance = np.zeros_like(linear), np.zeros_like(linear)
        for step in range(1, self.steps + 1):
            chosen = rng.choice(len(x), size, replace=False)
            gradient = x[chosen].T @ _gradient(x[chosen] @ linear, t[chosen])
            momentum = 0.9 * momentum + 0.1 * gradient
            variance = 0.99 * variance + 0.01 * gradient**2
            corrected = momentum / (1 - 0.9**step)
            linear = linear - unit * corrected / (np.sqrt(variance / (1 - 0.99**step)) + 1e-12)
        self.map_: Float64 = linear
        return self

    def transform(self, points: Float64) -> Float64:
        """Map points to the learned space."""
        return points @ self.map_

    def _scale(self, z: Float64) -> float:
        """Return the factor of `z` at which the median query has `n_effective` neighbors, by bisection."""
        low, high = -12.0, 12.0
        for _ in range(24):
            middle = (low + high) / 2
            effective = np.median(1 / (_neighbors(z * np.exp(middle)) ** 2).sum(axis=1))
            low, high = (middle, high) if effective > self.n_effective else (low, middle)
        return float(np.exp(low))


def _neighbors(z: Float64) -> Float64:
    """Return p_ij: the softmax of the negative squared distances to the other points."""
    norms = (z * z).sum(axis=1)
    squares = norms[:, None] + norms - 2 * z @ z.T
    np.fill_diagonal(squares, np.inf)
    p: Float64 = np.exp(squares.min(axis=1, keepdims=True) - squares)
    p /= p.sum(axis=1, keepdims=True)
    return p


def _gradient(z: Float64, t: Float64) -> Float64:
    """Return the gradient of the mean of |t_i - Σ_j p_ij t_j|² with respect to z."""
    p = _neighbors(z)
    by_p = 2 * (p @ t - t) @ t.T / len(t)
    by_distance = p * ((p * by_p).sum(axis=1, keepdims=True) - by_p)
    both = by_distance + by_distance.T
    gradient: Float64 = 2 * (both.sum(axis=1)[:, None] * z - both @ z)
    return gradient


def _center(points: Float64, targets: Float64) -> tuple[Float64, Float64]:
    if targets.ndim != 2 or len(targets) != len(points):
        raise DataError(f"a metric needs one target vector per query ({len(points)}), got shape {targets.shape}")
    if not np.isfinite(targets).all():
        raise DataError("targets contain missing or infinite values: give each training query a finite vector")
    points = points.astype(np.float64)
    return points - points.mean(axis=0), targets - targets.mean(axis=0, dtype=np.float64)


# --- Describer: turn queries into points ------------------------------------------------------------------------------


_AUTO_COMPONENTS = 46  # as many as lose no quality on the data we measured: docs/describe.md
_WHOLE_QUERY = ("size", "text")  # blocks that do not depend on the top documents
_CLIP = 1e6  # standard deviations at which values are clipped, so that one bad feature cannot make a distance infinite


class Describer(TransformerMixin, BaseEstimator):
    """Represent queries as points made of blocks of values, scaled on the training queries and weighted.

    Parameters
    ----------
    blocks
        ``"mean"`` (mean of the top documents' features, as in the KNN paper), ``"summaries"`` (mean, std, max, size,
        predictors), ``"summaries+text"``, ``"auto"`` (summaries, and text if the training queries have vectors), a
        list of blocks, or a mapping from block to weight. Blocks: mean, std,
        max, min, q25 (any percentile), size (log of the number of candidates), predictors (query performance
        predictors from the reference scores), text (the query vectors), ``column:NAME`` (a numeric query column).
    reference
        Name or position of the feature whose highest values mark the top documents. None: candidates are in the
        engine's order, and the first ones are the top documents.
    depth
        Number of top documents T to summarize.
    n_components
        Number of principal components to keep: one number for all blocks together, a mapping from block to
        number, or None to keep all dimensions.
    metric
        Metric to learn: ``"ridge"``, ``"nca"``, an object with ``fit(points, targets)`` and ``map_``, or None. It
        requires `targets` in `fit`.

    Attributes
    ----------
    names_ : tuple of str
        Name of each dimension before projection.
    mean_, scale_ : float64 arrays
        Shift and scale of each value. The scale is block weight / (standard deviation · sqrt(block size)), so that
        a block counts by its weight regardless of its size. The text block has one standard deviation for all of its
        values, their root mean square. Values that are constant in training get scale 0.
    projection_ : float64 array, or None
        Principal components and metric combined into one linear map.

    Notes
    -----
    Missing and infinite values are left out of every summary. An unknown summary is set to its training mean, which
    is 0 after scaling.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [3.0], [5.0], [9.0]], qid=[1, 1, 2, 2])
    >>> Describer("mean").fit(queries).transform(queries).tolist()
    [[-1.0], [1.0]]
    >>> Describer(["mean", "size"]).fit(queries).names
    ('mean(f1)', 'size')
    """

    def __init__(
        self,
        blocks: Spec = "mean",
        *,
        reference: str | int | None = None,
        depth: int = 50,
        n_components: int | Mapping[str, int] | None = None,
        metric: Any = None,
    ) -> None:
        self.blocks = blocks
        self.reference = reference
        self.depth = depth
        self.n_components = n_components
        self.metric = metric

    def fit(
        self, queries: QuerySet, query_vectors: QueryVectors | None = None, targets: ArrayLike | None = None
    ) -> Self:
        """Fit scales, and components and metric if requested, on training queries.

        Parameters
        ----------
        queries
            Training queries. Grades are not used, except to refuse rows that are sorted by them if the first ones
            describe a query.
        query_vectors
            For the text block: a mapping from query id to vector, or one row per query. Defaults to the query
            column ``vector``.
        targets
            For a metric: one row per query, such as its pairwise moment, that similar queries should share.
        """
        if not len(queries):
            raise DataError("cannot fit a description without queries: give at least one")
        has_vectors = query_vectors is not None or VECTORS in queries.query_columns
        self._prepare(queries.feature_names, has_vectors)
        if self.reference is None and any(block not in _WHOLE_QUERY and ":" not in block for block in self._weights):
            check_row_order(queries, self.depth)
        raw = raw_blocks(queries, self._weights, self._reference, self.depth, query_vectors)
        self._widths = {block: array.shape[1] for block, array in zip(self._weights, raw, strict=True)}
        moments_of_blocks = [moments(block) for block in raw]
        self.mean_ = np.concatenate([mean for mean, _ in moments_of_blocks])
        scales = [
            common_scale(scale) if block == "text" else scale
            for block, (_, scale) in zip(self._weights, moments_of_blocks, strict=True)
        ]
        self.scale_ = np.concatenate(
            [block_scale(scale, weight) for scale, weight in zip(scales, self._weights.values(), strict=True)]
        )
        self.projection_: Float64 | None = None
        points = self._scaled(raw)
        if self.n_components is not None:
            self.projection_ = components(points, self.n_components, self._widths)
            points = points @ self.projection_
        if self.metric is not None:
            if targets is None:
                raise DataError("a learned metric needs targets=, one vector per training query")
            metric = METRICS[self.metric]() if isinstance(self.metric, str) else clone(self.metric)
            learned = metric.fit(points, np.asarray(targets, dtype=np.float64)).map_
            self.projection_ = learned if self.projection_ is None else self.projection_ @ learned
        return self

    def transform(self, queries: QuerySet, query_vectors: QueryVectors | None = None) -> Float32:
        """Return the points, one row per query: an array, or a data frame after `set_output`."""
        return self.points(queries, query_vectors)

    def points(self, queries: QuerySet, query_vectors: QueryVectors | None = None) -> Float32:
        """Return the points as an array, without scikit-learn's choice of a container, which costs 25 microseconds."""
        if not hasattr(self, "mean_"):
            raise ParameterError("this Describer is not fitted: call fit with the training queries first")
        if queries.n_features != len(self._feature_names):
            raise DataError(
                f"the description was fitted on {len(self._feature_names)} features, got {queries.n_features}"
            )
        raw = raw_blocks(queries, self._weights, self._reference, self.depth, query_vectors)
        for array, (block, width) in zip(raw, self._widths.items(), strict=True):
            if array.shape[1] != width:
                raise DataError(f"block {block!r} was fitted with {width} values per query, got {array.shape[1]}")
        points = self._scaled(raw)
        if self.projection_ is not None:
            points = points @ self.projection_
        return points.astype(np.float32)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each dimension."""
        if self.projection_ is not None:
            return tuple(f"direction({i})" for i in range(self.projection_.shape[1]))
        return self.names_

    @property
    def names_(self) -> tuple[str, ...]:
        """Name of each dimension before projection."""
        return tuple(
            name for block, width in self._widths.items() for name in block_names(block, width, self._feature_names)
        )

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:  # noqa: ARG002 - the contract
        """Return `names` as an array, by which ``set_output(transform="pandas")`` names the columns."""
        return np.array(self.names, dtype=object)

    @property
    def needs_targets(self) -> bool:
        """Whether `fit` needs `targets`."""
        return self.metric is not None

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the fitted arrays."""
        state: dict[str, NDArray[Any]] = {
            "feature_names": np.array(self._feature_names),
            "blocks": np.array(list(self._widths)),
            "widths": np.array(list(self._widths.values())),
            "mean": self.mean_,
            "scale": self.scale_,
        }
        return state if self.projection_ is None else {**state, "projection": self.projection_}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the fitted arrays from what `get_state` returned."""
        self._prepare(tuple(state["feature_names"].tolist()), "text" in state["blocks"])
        self._widths = dict(zip(self._weights, state["widths"].tolist(), strict=True))
        self.mean_, self.scale_ = state["mean"], state["scale"]
        self.projection_ = state.get("projection")
        return self

    def _prepare(self, feature_names: tuple[str, ...], has_vectors: bool) -> None:
        if self.depth < 1:
            raise ParameterError(f"depth must be at least 1 document, got {self.depth}")
        blocks = self.blocks
        if isinstance(blocks, str) and blocks == "auto":
            blocks = "summaries+text" if has_vectors else "summaries"
        self._weights = parse_blocks(blocks, scored=self.reference is not None)
        self._feature_names = feature_names
        self._reference = -1 if self.reference is None else feature_position(self.reference, feature_names)

    def _scaled(self, raw: list[Float64]) -> Float64:
        points = raw[0] if len(raw) == 1 else np.concatenate(raw, axis=1)
        points = (points - self.mean_) * self.scale_
        points[np.isnan(points)] = 0.0
        clipped: Float64 = np.minimum(np.maximum(points, -_CLIP, out=points), _CLIP, out=points)
        return clipped


def make_describer(describe: Spec | Describer, *, reference: str | int | None = None) -> Describer:
    """Return a new unfitted Describer, from a specification of blocks or by cloning the one given.

    Examples
    --------
    >>> make_describer("summaries+text", reference="bm25")
    Describer(blocks='summaries+text', reference='bm25')
    >>> make_describer("auto")
    Describer(blocks='auto', n_components=46)
    """
    if isinstance(describe, Describer):
        unfitted: Describer = clone(describe)
        return unfitted
    components = _AUTO_COMPONENTS if isinstance(describe, str) and describe == "auto" else None
    return Describer(describe, reference=reference, n_components=components)


def check_reference(describe: Spec | Describer, reference: str | int | None) -> None:
    """Raise if a ranker's reference is not that of the `Describer` it was given, which describes by its own."""
    if isinstance(describe, Describer) and reference not in (None, describe.reference):
        raise ParameterError(
            f"reference={reference!r} is not the reference of {describe!r}, which describes the queries: "
            f"set Describer(reference={reference!r})"
        )
