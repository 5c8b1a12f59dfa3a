"""What `kinrank tune` tries, and in which order: sensible settings first, then what follows from the best so far."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import has_text
from kinrank.describe import Describer
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.prepare import Missing
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers.base import Ranker
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.persistence import settings_of
from kinrank.rankers.registry import RANKERS
from kinrank.rankers.single import SingleRanker

Stage = Literal["list", "follow-up", "drawn"]

FAMILIES = ("single", "knn", "lambdamart", "kin")
"""What is tuned by default; "lambdamart" is one LightGBM model for all queries. Other rankers are tried as they are."""
TREES = ("lambdamart", "kin")


@dataclass(frozen=True)
class Candidate:
    """A ranker to try.

    Attributes
    ----------
    family : str
        Of `FAMILIES`.
    ranker : Ranker
        Not fitted.
    stage : {"list", "follow-up", "drawn"}
        Where it comes from.
    sweep : bool
        Whether k and the pull to the global model are swept: every value at the price of one.
    params : mapping or None
        Where a sampler proposed it: what it drew.
    """

    family: str
    ranker: Ranker
    stage: Stage = "list"
    sweep: bool = False
    params: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """What tells one candidate from another."""
        return json.dumps([self.family, settings_of(self.ranker), self.sweep], sort_keys=True)


def available_families() -> list[str]:
    """The families that this installation can fit."""
    return [family for family in FAMILIES if family not in TREES or importlib.util.find_spec("lightgbm") is not None]


def first_candidates(
    queries: QuerySet, families: Sequence[str], *, reference: str | int | None, group: str | None, missing: Missing
) -> Iterator[Candidate]:
    """The fixed list, cheap and promising ones first.

    Parameters
    ----------
    queries
        Tell which descriptions there can be.
    families
        Of `FAMILIES`.
    reference, group, missing
        As in `kinrank.study.tuning.Plan`.
    """
    for family in families:
        if family not in FAMILIES and family not in RANKERS:
            choices = dict.fromkeys((*available_families(), *RANKERS))
            raise ParameterError(f"unknown family {family!r}: choose among {', '.join(choices)}")
    linear: dict[str, Any] = {"missing": missing}
    if "single" in families:
        for penalty in (0.01, 0.001, 0.1):
            yield Candidate("single", SingleRanker(RankRLS(penalty=penalty), **linear))
    if "knn" in families:
        for blocks, components in descriptions(queries):
            describer = Describer(blocks, reference=reference, n_components=components)
            yield Candidate("knn", KnnRanker(describe=describer, **linear), sweep=True)
    if "kin" in families:
        for bag in (None, LambdaMART(300, 31, 0.05, params={"feature_fraction": 0.5})):
            yield Candidate("kin", KinRanker(trees=bag, reference=reference, group_column=group))
    if "lambdamart" in families:
        for trees in (
            LambdaMART(200, learning_rate=0.05, n_threads=1),
            LambdaMART(200, 15, 0.05, min_rows_in_leaf=50, n_threads=1),
            LambdaMART(400, learning_rate=0.03, n_threads=1),
        ):
            yield Candidate("lambdamart", SingleRanker(trees))
    for family in families:
        if family not in FAMILIES:
            yield Candidate(family, _with_defaults(family, reference=reference, missing=missing))


def _with_defaults(family: str, **shared: Any) -> Ranker:
    """Return a registered ranker with its defaults, and those of the shared settings that it has and are given."""
    ranker: Ranker = RANKERS[family]()
    known = ranker.get_params(deep=False)
    ranker.set_params(**{name: value for name, value in shared.items() if name in known and value is not None})
    return ranker


def descriptions(queries: QuerySet) -> Iterator[tuple[dict[str, float] | str, int | None]]:
    """Blocks and components of the descriptions that the queries allow."""
    if has_text(queries):
        yield "summaries+text", None
        yield {"summaries": 1.0, "text": 4.0}, None
        yield "summaries+text", 46
        yield "text", None
    yield "summaries", None
    yield "mean", None


def follow_ups(best: KnnRanker) -> Iterator[Candidate]:
    """What may better the best listed KNN ranker: other penalties, neighbors that weigh less with distance."""
    for penalty in (0.003, 0.03):
        yield Candidate("knn", _like(best, learner=RankRLS(penalty=penalty)), "follow-up", sweep=True)
    for factor in (2, 4):
        wider = _like(best, n_neighbors=factor * best.n_neighbors, neighbor_weights="gaussian")
        yield Candidate("knn", wider, "follow-up")


def _like(ranker: KnnRanker, **changes: Any) -> KnnRanker:
    return KnnRanker(**{**ranker.get_params(deep=False), **changes})
