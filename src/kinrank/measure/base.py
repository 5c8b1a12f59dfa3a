"""The base class of measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.errors import ParameterError
from kinrank.measure.lists import TIES, RankedLists, Ties, rank
from kinrank.registry.choices import check_choice

NoRelevant = Literal[0, 1, "skip"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Measure(ABC):
    """A measure of ranked lists. Two measures are equal if all their conventions are.

    Examples
    --------
    >>> from kinrank.measure import NDCG
    >>> lenient = NDCG(gain="linear", no_relevant=1) @ 10
    >>> lenient
    NDCG(no_relevant=1, gain='linear') @ 10
    >>> str(lenient)
    'NDCG@10'
    >>> lenient == NDCG(gain="linear", no_relevant=1) @ 10
    True
    >>> lenient.per_query(scores=[3.0, 2.0, 1.0], y=[1, 0, 0], offsets=[0, 2, 3]).tolist()
    [1.0, 1.0]
    """

    name: ClassVar[str]

    k: int | None = None
    """The cutoff, written ``NDCG @ 10``; None measures the whole list."""
    ties: Ties = "order"
    """How equal scores are ordered: "order" (the earlier row first), "pessimistic", "optimistic", "average" (the exact
    expectation over random orders) or "doc_id" (the last id first, as in trec_eval).
    """
    no_relevant: NoRelevant = 0
    """The value of a query without relevant documents; "skip" makes it NaN and excludes it from the mean."""

    def __post_init__(self) -> None:
        if self.k is not None and (isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1):
            raise ParameterError(f"the cutoff must be a whole number from 1, got {self.name} @ {self.k!r}")
        check_choice("ties", self.ties, TIES)
        check_choice("no_relevant", self.no_relevant, (0, 1, "skip"))

    def __matmul__(self, k: int) -> Self:
        return replace(self, k=k)

    def __call__(self, **conventions: Any) -> Self:
        """Return the measure with other conventions."""
        known = [field.name for field in fields(self)]
        for name in conventions:
            if name not in known:
                raise ParameterError(f"{self.name} has no convention {name!r}: choose one of {', '.join(known)}")
        return replace(self, **conventions)

    def per_query(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        offsets: ArrayLike,
        doc_id: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Float64:
        """Return the value of each query.

        Parameters
        ----------
        scores, y
            The score and the grade of each row. The rows of a query are adjacent.
        offsets
            Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
        doc_id
            The document of each row, for ``ties="doc_id"``.
        sample_weight
            The weight of each row. Rows of weight 0 are left out of the lists; a rank cannot count in part, so that
            other weights do not change the value of a query, only its share in the `mean`.

        Returns
        -------
        float64 array of shape (queries,)
            NaN for queries that ``no_relevant="skip"`` excludes.
        """
        return self.of_lists(rank(scores, y, offsets, self.ties, doc_id, sample_weight=sample_weight))

    def mean(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        offsets: ArrayLike,
        doc_id: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the mean of `per_query` over the queries that are not excluded; NaN if all are.

        A query counts as much as the mean weight of its rows.

        Examples
        --------
        >>> from kinrank.measure import NDCG
        >>> round(NDCG.mean([2.0, 1.0, 2.0, 1.0], [1, 0, 0, 1], [0, 2, 4], sample_weight=[3, 3, 1, 1]), 4)
        0.9077
        """
        values = self.per_query(scores, y, offsets, doc_id, sample_weight)
        return mean_of(values, None if sample_weight is None else query_means(sample_weight, offsets))

    def of_lists(self, lists: RankedLists) -> Float64:
        """Return the value of each ranked list; `lists` must be ranked with the ``ties`` of this measure."""
        values = self._values(lists)
        empty = ~self._has_relevant(lists)
        values[empty] = np.nan if self.no_relevant == "skip" else self.no_relevant
        return values

    @abstractmethod
    def _values(self, lists: RankedLists) -> Float64:
        """Return the value of each query; any finite value for queries without relevant documents."""

    @abstractmethod
    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        """Return which queries have a relevant document."""

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name != "k" and getattr(self, field.name) != field.default
        ]
        conventions = f"({', '.join(changed)})" if changed else ""
        return f"{self.name}{conventions}" + ("" if self.k is None else f" @ {self.k}")


def mean_of(values: Float64, weights: Float64 | None = None) -> float:
    """Return the mean of the values that are not NaN, or NaN without a warning if all are or weigh 0."""
    kept = ~np.isnan(values)
    if weights is not None:
        kept &= weights > 0
    if not kept.any():
        return float("nan")
    return float(values[kept].mean() if weights is None else np.average(values[kept], weights=weights[kept]))


def query_means(values: ArrayLike, offsets: ArrayLike) -> Float64:
    """Return the mean of the values of each query; 0 for a query without rows."""
    bounds = np.asarray(offsets)
    sizes = np.diff(bounds)
    query = np.repeat(np.arange(len(sizes)), sizes)
    total = np.bincount(query, weights=np.asarray(values, dtype=np.float64), minlength=len(sizes))
    return np.asarray(total / np.maximum(sizes, 1))
