"""What a measure is: a value with named conventions, computed for all queries at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.errors import ParameterError
from kinrank.measure.lists import TIES, Float, RankedLists, Ties, rank

NoRelevant = Literal[0, 1, "skip"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Measure(ABC):
    """A measure of ranked lists; equal when all its conventions are.

    Attributes
    ----------
    k : int or None
        The cutoff, written ``NDCG @ 10``; None measures the whole list.
    ties : str
        What decides between equal scores: "order" (the earlier row first), "pessimistic", "optimistic",
        "average" (the expectation over random order, exact) or "doc_id" (trec_eval's: the last id first).
    no_relevant : 0, 1 or "skip"
        What a query without relevant documents counts; "skip" makes it NaN and leaves it out of the mean.

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
    ties: Ties = "order"
    no_relevant: NoRelevant = 0

    def __post_init__(self) -> None:
        if self.k is not None and (isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1):
            raise ParameterError(f"a cutoff must be a whole number from 1, got {self.name} @ {self.k!r}")
        check_choice("ties", self.ties, TIES)
        check_choice("no_relevant", self.no_relevant, (0, 1, "skip"))

    def __matmul__(self, k: int) -> Self:
        return replace(self, k=k)

    def __call__(self, **conventions: Any) -> Self:
        """The same measure with other conventions."""
        known = [field.name for field in fields(self)]
        for name in conventions:
            if name not in known:
                raise ParameterError(f"{self.name} has no convention {name!r}: choose from {', '.join(known)}")
        return replace(self, **conventions)

    def per_query(self, scores: ArrayLike, y: ArrayLike, offsets: ArrayLike, doc_id: ArrayLike | None = None) -> Float:
        """The value of each query.

        Parameters
        ----------
        scores, y
            Score and grade of each row; rows of one query lie together.
        offsets
            Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
        doc_id
            The document of each row; needed for ``ties="doc_id"`` only.

        Returns
        -------
        float64 array of shape (queries,)
            NaN where ``no_relevant="skip"`` leaves a query out.
        """
        return self.of_lists(rank(scores, y, offsets, self.ties, doc_id))

    def mean(self, scores: ArrayLike, y: ArrayLike, offsets: ArrayLike, doc_id: ArrayLike | None = None) -> float:
        """The mean over queries of `per_query`, without those left out; NaN where all are."""
        return mean_of(self.per_query(scores, y, offsets, doc_id))

    def of_lists(self, lists: RankedLists) -> Float:
        """The value of each query whose documents are already in ranked order.

        The lists must have been ranked by this measure's rule for ties.
        """
        values = self._values(lists)
        empty = ~self._has_relevant(lists)
        values[empty] = np.nan if self.no_relevant == "skip" else self.no_relevant
        return values

    @abstractmethod
    def _values(self, lists: RankedLists) -> Float:
        """The value of each query as defined; anything finite where nothing is relevant."""

    @abstractmethod
    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        """Which queries have a relevant document."""

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"

    def __repr__(self) -> str:
        said = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name != "k" and getattr(self, field.name) != field.default
        ]
        conventions = f"({', '.join(said)})" if said else ""
        return f"{self.name}{conventions}" + ("" if self.k is None else f" @ {self.k}")


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise where a convention is not one of its named values."""
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def mean_of(values: Float) -> float:
    """The mean of what is not NaN; NaN, without a warning, where nothing is left."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
