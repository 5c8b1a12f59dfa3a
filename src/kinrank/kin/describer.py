"""Describer: turn queries into points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator, TransformerMixin, clone

from kinrank.arrays import Float32, Float64
from kinrank.data.query_rows import feature_position
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import VECTORS, QueryVectors
from kinrank.errors import DataError, ParameterError
from kinrank.kin.blocks import Spec, block_names, check_row_order, parse_blocks, raw_blocks

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


# --- Describer: turn queries into points ------------------------------------------------------------------------------


_AUTO_COMPONENTS = 46  # as many as lose no quality on the data we measured: docs/describe.md
_WHOLE_QUERY = ("size", "text")  # blocks that do not depend on the top documents
# Values are clipped, so that one bad feature cannot make a distance infinite: at so many standard deviations from the
# mean, or at this distance from it if they are not standardized.
_CLIP, _RAW_CLIP = 1e6, 1e14


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
    standardize
        Whether values are scaled, and blocks weighted. With False, as in the KNN paper, distances are those of the
        values themselves, and the feature with the largest numbers decides.

    Attributes
    ----------
    names_ : tuple of str
        Name of each dimension before projection.
    mean_, scale_ : float64 arrays
        Shift and scale of each value. The scale is block weight / (standard deviation · sqrt(block size)), so that
        a block counts by its weight regardless of its size. The text block has one standard deviation for all of its
        values, their root mean square. Values that are constant in training get scale 0. Without `standardize`, all
        scales are 1.
    projection_ : float64 array, or None
        Principal components.

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
        standardize: bool = True,
    ) -> None:
        self.blocks = blocks
        self.reference = reference
        self.depth = depth
        self.n_components = n_components
        self.standardize = standardize

    @classmethod
    def as_published(cls, reference: str | int | None = "bm25", top: int = 50) -> Self:
        """Return the query features of the KNN paper (Geng et al. 2008, section 3.2.1).

        They are the mean of each feature over the `top` documents ranked by the reference model (T = 50 and BM25 in
        section 4.1.2), compared by Euclidean distance as they are.

        Examples
        --------
        >>> Describer.as_published("score")
        Describer(reference='score', standardize=False)
        """
        if reference is None:
            raise ParameterError(
                "the paper describes a query by its top documents according to a reference model: set reference= to "
                "the name or position of the feature that ranks candidates today, such as BM25"
            )
        return cls("mean", reference=reference, depth=top, standardize=False)

    def fit(self, queries: QuerySet, query_vectors: QueryVectors | None = None) -> Self:
        """Fit scales, and components if requested, on training queries.

        Parameters
        ----------
        queries
            Training queries. Grades are not used, except to refuse rows that are sorted by them if the first ones
            describe a query.
        query_vectors
            For the text block: a mapping from query id to vector, or one row per query. Defaults to the query
            column ``vector``.
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
        if not self.standardize:
            self.scale_ = np.ones(len(self.mean_))
        self.projection_: Float64 | None = None
        if self.n_components is not None:
            self.projection_ = components(self._scaled(raw), self.n_components, self._widths)
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
        limit = _CLIP if self.standardize else _RAW_CLIP
        clipped: Float64 = np.minimum(np.maximum(points, -limit, out=points), limit, out=points)
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
