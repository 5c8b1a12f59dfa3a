"""Sample descriptions and penalties with Optuna, given all earlier trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import has_text
from kinrank.describe import Describer
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.registry import import_extra
from kinrank.study.space import Proposal

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
