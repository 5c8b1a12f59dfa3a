"""Compare a fitted ranker with the global model on held-out queries, and keep the global model if nothing is gained."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Literal

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn import LEARNERS
from kinrank.measure import NDCG, Measure, PairedComparison, compare_paired, evaluate
from kinrank.rankers import RANKERS, Ranker
from kinrank.study.leaks import find_leaks

GLOBAL_RANKER = "single"
LEVEL = 0.05
MEASURE = NDCG @ 10

Outcome = Literal["gain", "loss", "none"]


@dataclass(frozen=True, eq=False)
class Validation:
    """The result of `validate`.

    Attributes
    ----------
    name : str
        Name of the validated ranker in `RANKERS`.
    kept : Ranker
        The ranker to use: the validated one if it gains, else the global model.
    kept_name : str
        Name of `kept` in `RANKERS`.
    measure : Measure
        The measure that decides.
    n_queries : int
        Number of held-out queries.
    quality : float
        Mean of the measure for the validated ranker.
    global_quality : float or None
        Mean of the measure for the global model; None if the validated ranker is the global model.
    difference : PairedComparison or None
        The validated ranker compared with the global model.
    """

    name: str
    kept: Ranker
    kept_name: str
    measure: Measure
    n_queries: int
    quality: float
    global_quality: float | None = None
    difference: PairedComparison | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Whether the ranker gains or loses significantly; None without a comparison."""
        return None if self.difference is None else _outcome(self.difference)


def check_held_out(queries: QuerySet, held_out: QuerySet) -> None:
    """Raise if `held_out` cannot validate a ranker that is fitted on `queries`."""
    if held_out.y is None or held_out.feature_names != queries.feature_names:
        raise DataError("held-out queries must be judged and have the training features in the same order")
    find_leaks(queries, held_out).raise_if_seen(queries, held_out)


def validate(name: str, ranker: Ranker, queries: QuerySet, held_out: QuerySet) -> Validation:
    """Compare a fitted ranker with one global model, and keep the global model unless the ranker is better.

    Parameters
    ----------
    name
        Name of the ranker in `RANKERS`.
    ranker
        The ranker, fitted on `queries`.
    queries
        The training queries; the global model is fitted on them, too.
    held_out
        Judged queries that are not in `queries`.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> found = validate("knn", KnnRanker(5).fit(camps[:40]), camps[:40], camps[40:])
    >>> found.kept_name, found.outcome
    ('knn', 'gain')
    """
    own = evaluate(held_out, ranker.predict(held_out), [MEASURE])
    if name == GLOBAL_RANKER:
        return Validation(name, ranker, name, MEASURE, len(held_out), own[MEASURE])
    global_model = _global_model(ranker, queries)
    baseline = evaluate(held_out, global_model.predict(held_out), [MEASURE])
    difference = compare_paired(own.per_query[MEASURE], baseline.per_query[MEASURE])
    kept, kept_name = (ranker, name) if _outcome(difference) == "gain" else (global_model, GLOBAL_RANKER)
    return Validation(name, kept, kept_name, MEASURE, len(held_out), own[MEASURE], baseline[MEASURE], difference)


def _outcome(difference: PairedComparison) -> Outcome:
    if difference.p <= LEVEL and difference.mean_difference > 0:
        return "gain"
    return "none" if difference.p > LEVEL else "loss"


def _global_model(ranker: Ranker, queries: QuerySet) -> Ranker:
    """Fit one model for all queries, with the learner and preprocessing of the ranker if it has them."""
    single = RANKERS[GLOBAL_RANKER]
    own = ranker.get_params(deep=False)
    shared = {name: own[name] for name in inspect.signature(single).parameters if name in own}
    if shared.get("learner") not in LEARNERS:  # a regressor of grades is not a learner of SingleRanker
        shared.pop("learner", None)
    fitted: Ranker = single(**shared).fit(queries)
    return fitted
