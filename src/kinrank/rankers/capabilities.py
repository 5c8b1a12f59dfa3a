"""What a ranker can do: declared by its class, readable before it is fitted.

Code that works with any ranker asks here and never inspects attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeGuard

from kinrank.rankers.registry import RANKERS


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
    evidence: bool = _can("takes what people chose without a new fit")
    remembers: bool = _can("ranks a document by how it was judged or chosen for similar queries")
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


def capabilities_of(ranker: object) -> Capabilities:
    """Return what a ranker can do; models of other libraries declare nothing."""
    declared = getattr(ranker, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


def can_explain(ranker: object) -> TypeGuard[Any]:
    """Return whether a ranker explains its rankings, by `explain`."""
    return capabilities_of(ranker).explains


def has_weights(ranker: object) -> TypeGuard[Any]:
    """Return whether a ranker has linear weights for each query; see `kinrank.rankers.base.WeightedRanker`."""
    return capabilities_of(ranker).weights


def can_adapt(ranker: object) -> TypeGuard[Any]:
    """Return whether a ranker adds judged queries, and removes or replaces them by id, without a new fit.

    It has `add`, `remove` and `copy`; `has_judged`, which tells ids of judged queries, and `check_learnable`, which
    raises if `add` could not learn queries; `prepare_to_learn`, so that the first change is fast; and `qid_`,
    `n_judged_` and `n_unseen_`, the judged queries that a part of it learns from only with the next fit.
    """
    return capabilities_of(ranker).replaces


def takes_evidence(ranker: object) -> TypeGuard[Any]:
    """Return whether a ranker takes what people chose since it was fitted, by `with_recent`, and explores by `draw`."""
    return capabilities_of(ranker).evidence


def capability_table() -> str:
    """Return a table of the capabilities of all rankers with default settings, and what each capability means.

    Examples
    --------
    >>> print(capability_table())
    capability  kin      single ...
    explains    yes      -      ...
    """
    declared = {name: dict(RANKERS[name]().capabilities) for name in RANKERS}
    meanings = Capabilities.meanings()
    rows = [["capability", *declared]]
    rows += [[name, *("yes" if able[name] else "-" for able in declared.values())] for name in meanings]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    legend = [f"{name.ljust(widths[0])}  {meaning}" for name, meaning in meanings.items()]
    return "\n".join([*lines, "", *legend])
