"""What a ranker can do: declared by its class, readable before it is fitted.

Code that works with any ranker asks here and never inspects attributes. The functions at the end also tell the type
checker which methods are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.data.normalization import Normalization
from kinrank.data.queryset import QuerySet
from kinrank.rankers.linear_weights import LinearWeights
from kinrank.rankers.local.explanation import Explanation


def _can(meaning: str) -> Any:
    return field(default=False, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Capabilities:
    """What a ranker can do with its current settings.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> KnnRanker().capabilities.weights, KnnRanker(learner="lambdamart").capabilities.weights
    (True, False)
    """

    explains: bool = _can("explains why a query is ranked as it is")
    weights: bool = _can("has one linear weight vector per query, for a search engine")
    novelty: bool = _can("knows how far a query is from the judged ones")
    adds: bool = _can("takes new judgments without a new fit")
    forgets: bool = _can("forgets judgments without a new fit")
    replaces: bool = _can("replaces the judgments of a query it knows by id")
    merges: bool = _can("merges with a ranker fitted elsewhere")
    streams: bool = _can("trains from disk, block by block")
    vectors: bool = _can("uses query vectors")
    text: bool = _can("encodes query texts by itself")
    missing: bool = _can("fills missing values")

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return each capability with its meaning."""
        return {capability.name: capability.metadata["meaning"] for capability in fields(cls)}

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        return iter(asdict(self).items())


class Explainer(Protocol):
    """A ranker with `explain`."""

    def explain(self, X: QuerySet) -> Sequence[Explanation]:
        """Explain the ranking of each query."""
        ...


class Weighted(Protocol):
    """A ranker with `weights`."""

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query before the weights apply; None for features as given."""
        ...

    def weights(self, X: QuerySet) -> Float64:
        """Return one weight vector per query."""
        ...

    def weights_with_fidelity(self, queries: QuerySet) -> LinearWeights:
        """Return the weights of grouped queries, and how well they reproduce the ranking."""
        ...


class Adaptive(Protocol):
    """A ranker that learns from single queries, and forgets them, without a new fit."""

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries."""
        ...

    @property
    def n_judged_(self) -> int:
        """The number of judged queries."""
        ...

    @property
    def n_unseen_(self) -> int:
        """The number of judged queries that a part of the ranker learns from only with the next fit."""
        ...

    feature_names_: tuple[str, ...]
    judgments_through_: int | None

    def prepare_to_learn(self) -> Self:
        """Compute what the first `add` or `remove` after loading would take longer for."""
        ...

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are those of judged queries."""
        ...

    def check_learnable(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        ...

    def add(self, X: QuerySet) -> Self:
        """Learn from further judged queries."""
        ...

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries."""
        ...

    def copy(self) -> Self:
        """Return a copy that can change independently."""
        ...


def capabilities_of(ranker: object) -> Capabilities:
    """Return what a ranker can do; models of other libraries declare nothing."""
    declared = getattr(ranker, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


def can_explain(ranker: object) -> TypeGuard[Explainer]:
    """Return whether a ranker explains its rankings."""
    return capabilities_of(ranker).explains


def has_weights(ranker: object) -> TypeGuard[Weighted]:
    """Return whether a ranker has linear weights for each query."""
    return capabilities_of(ranker).weights


def can_adapt(ranker: object) -> TypeGuard[Adaptive]:
    """Return whether a ranker adds judged queries, and removes or replaces them by id, without a new fit."""
    return capabilities_of(ranker).replaces
