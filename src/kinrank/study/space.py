"""Rankers that tuning tries, in order: a fixed list, variations of the best, then samples of Optuna."""

from __future__ import annotations

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
from kinrank.rankers.kin.settings import MOST_TREES
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.persistence import settings_of
from kinrank.rankers.registry import RANKERS
from kinrank.rankers.single import SingleRanker
from kinrank.registry import import_extra
from kinrank.study.ladder import missing_trees
from kinrank.study.peers import SHAPES

Stage = Literal["list", "follow-up", "drawn"]

FAMILIES = ("single", "knn", "lambdamart", "kin")
"""Families tuned by default; "lambdamart" is one LightGBM model for all queries. Other rankers are tried untuned."""
TREES = ("lambdamart", "kin")


@dataclass(frozen=True)
class Proposal:
    """A ranker to try."""

    family: str
    """One of `FAMILIES`."""
    ranker: Ranker
    """The unfitted ranker."""
    stage: Stage = "list"
    """Where the proposal comes from."""
    sweep: bool = False
    """Whether to try all values of k and prior strength, or all numbers of trees, in one pass."""
    params: dict[str, Any] | None = None
    """Sampled parameters, if it was sampled."""

    @property
    def key(self) -> str:
        """Text that identifies the proposal."""
        return json.dumps([self.family, settings_of(self.ranker), self.sweep], sort_keys=True)


def available_families(queries: QuerySet) -> list[str]:
    """Return the families that can be fitted with the installed packages and to these grades."""
    return [family for family in FAMILIES if family not in TREES or not missing_trees(queries)]


def listed_proposals(
    queries: QuerySet, families: Sequence[str], *, reference: str | int | None, group: str | None, missing: Missing
) -> Iterator[Proposal]:
    """Yield the fixed list, cheap and promising rankers first.

    Parameters
    ----------
    queries
        Training queries; they determine which descriptions are possible.
    families
        Families of `FAMILIES` to try.
    reference, group, missing
        As in `kinrank.study.tuning.Plan`.
    """
    for family in families:
        if family not in FAMILIES and family not in RANKERS:
            choices = dict.fromkeys((*available_families(queries), *RANKERS))
            raise ParameterError(f"unknown family {family!r}: choose one of {', '.join(choices)}")
    linear: dict[str, Any] = {"missing": missing}
    if "single" in families:
        for penalty in (0.01, 0.001, 0.1):
            yield Proposal("single", SingleRanker(RankRLS(penalty=penalty), **linear))
    if "knn" in families:
        for blocks, components in descriptions(queries):
            describer = Describer(blocks, reference=reference, n_components=components)
            yield Proposal("knn", KnnRanker(describe=describer, **linear), sweep=True)
    if "kin" in families:
        for bag in (None, LambdaMART(MOST_TREES, 31, 0.05, params={"feature_fraction": 0.5})):
            yield Proposal("kin", KinRanker(trees=bag, reference=reference, group_column=group, **linear))
    if "lambdamart" in families:
        for leaves, least in SHAPES:  # as the LightGBM of a comparison tries them
            trees = LambdaMART(MOST_TREES, leaves, 0.05, least, n_threads=1)
            yield Proposal("lambdamart", SingleRanker(trees), sweep=True)
    for family in families:
        if family not in FAMILIES:
            yield Proposal(family, _with_defaults(family, reference=reference, missing=missing))


def _with_defaults(family: str, **shared: Any) -> Ranker:
    """Return a registered ranker with its defaults and the shared parameters that it has."""
    ranker: Ranker = RANKERS[family]()
    known = ranker.get_params(deep=False)
    ranker.set_params(**{name: value for name, value in shared.items() if name in known and value is not None})
    return ranker


def descriptions(queries: QuerySet) -> Iterator[tuple[dict[str, float] | str, int | None]]:
    """Yield blocks and number of components of the descriptions that are possible for the queries."""
    if has_text(queries):
        yield "summaries+text", None
        yield {"summaries": 1.0, "text": 4.0}, None
        yield "summaries+text", 46
        yield "text", None
    yield "summaries", None
    yield "mean", None


def without_local_models(best: KinRanker) -> Proposal:
    """Return the best listed KinRanker without the queries' own models, to show what they add."""
    return Proposal("kin", KinRanker(**{**best.get_params(deep=False), "local": False}), "follow-up")


def follow_up_proposals(best: KnnRanker) -> Iterator[Proposal]:
    """Yield variations of the best listed KNN ranker: other penalties, neighbors that count alike, more of them."""
    for penalty in (0.003, 0.03):
        yield Proposal("knn", _vary(best, learner=RankRLS(penalty=penalty)), "follow-up", sweep=True)
    yield Proposal("knn", _vary(best, neighbor_weights="uniform"), "follow-up", sweep=True)
    yield Proposal("knn", _vary(best, n_neighbors=2 * best.k), "follow-up")


def _vary(ranker: KnnRanker, **changes: Any) -> KnnRanker:
    return KnnRanker(**{**ranker.get_params(deep=False), **changes})


Drawn = tuple[dict[str, Any], float]


def sampled_proposal(
    queries: QuerySet, reference: str | int | None, missing: Any, earlier: Sequence[Drawn], seed: int
) -> Proposal:
    """Return a KNN ranker with block weights, components and penalty sampled by Optuna's TPE sampler.

    Parameters
    ----------
    queries
        Training queries; they determine which blocks are possible.
    reference, missing
        As in `KnnRanker`.
    earlier
        Parameters and quality of earlier samples.
    seed
        Seed; the same seed and earlier samples give the same result.
    """
    optuna = import_extra("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = dict(_space(optuna, queries, reference))
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + len(earlier)))
    for params, value in earlier:
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))
    drawn = study.ask(space).params
    blocks = {name.removeprefix("block "): value for name, value in drawn.items() if name.startswith("block ")}
    describer = Describer(blocks, reference=reference, n_components=drawn["n_components"])
    ranker = KnnRanker(describe=describer, learner=RankRLS(penalty=drawn["penalty"]), missing=missing)
    return Proposal("knn", ranker, "drawn", sweep=True, params=drawn)


def _space(optuna: Any, queries: QuerySet, reference: str | int | None) -> Iterator[tuple[str, Any]]:
    floats = optuna.distributions.FloatDistribution
    blocks = ["mean", "std", "max", "size"]
    blocks += ["predictors"] if reference is not None else []
    blocks += ["text"] if has_text(queries) else []
    for block in blocks:
        yield f"block {block}", floats(0.1, 8.0, log=True)
    yield "penalty", floats(0.001, 0.1, log=True)
    yield "n_components", optuna.distributions.CategoricalDistribution([None, 16, 46])
