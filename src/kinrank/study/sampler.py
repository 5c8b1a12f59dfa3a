"""What to try when the list is done: descriptions and penalties drawn by Optuna, told of every earlier trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import has_text
from kinrank.describe import Describer
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.registry import import_extra
from kinrank.study.space import Candidate

Drawn = tuple[dict[str, Any], float]


def sampled_candidate(
    queries: QuerySet, reference: str | int | None, missing: Any, earlier: Sequence[Drawn], seed: int
) -> Candidate:
    """A KNN ranker with block weights, components and penalty drawn by Optuna's TPE sampler.

    Parameters
    ----------
    queries
        Tell which blocks there can be.
    reference, missing
        As in `KnnRanker`.
    earlier
        What was drawn before, and what it reached.
    seed
        The same seed and the same earlier trials draw the same.
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
    return Candidate("knn", ranker, "drawn", sweep=True, params=drawn)


def _space(optuna: Any, queries: QuerySet, reference: str | int | None) -> Iterator[tuple[str, Any]]:
    floats = optuna.distributions.FloatDistribution
    blocks = ["mean", "std", "max", "size"]
    blocks += ["predictors"] if reference is not None else []
    blocks += ["text"] if has_text(queries) else []
    for block in blocks:
        yield f"block {block}", floats(0.1, 8.0, log=True)
    yield "penalty", floats(0.001, 0.1, log=True)
    yield "n_components", optuna.distributions.CategoricalDistribution([None, 16, 46])
