"""Compare a fitted ranker with one model for all queries on held-out queries, and keep that unless the ranker gains."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import cast

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn import LEARNERS
from kinrank.measure import NDCG, Measure
from kinrank.rankers import RANKERS, Ranker
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.single import SingleRanker
from kinrank.study.answer import ONE_MODEL, RUNGS, Answer
from kinrank.study.comparison import Entrant
from kinrank.study.entrants import evaluate_ranker
from kinrank.study.ladder import answer_of, climb, missing_trees, rung_of
from kinrank.study.leaks import find_leaks
from kinrank.study.peers import LightGBMPeer

GLOBAL_RANKER = "single"
MEASURE = NDCG @ 10


@dataclass(frozen=True, eq=False)
class Validation:
    """The result of `validate`.

    Attributes
    ----------
    name : str
        Name of the validated ranker in `RANKERS`.
    kept : Ranker
        The ranker to use: the validated one if it gains, else the better model for all queries.
    kept_name : str
        Name of `kept` in `RANKERS`.
    measure : Measure
        The measure that decides.
    n_queries : int
        Number of held-out queries.
    means : dict
        Mean of the measure for each ranker that was measured, by name.
    answer : Answer or None
        What the comparison says; None if the validated ranker is one model for all queries.
    """

    name: str
    kept: Ranker
    kept_name: str
    measure: Measure
    n_queries: int
    means: dict[str, float]
    answer: Answer | None = None


def check_held_out(queries: QuerySet, held_out: QuerySet, group: str | None = None) -> None:
    """Raise if `held_out` cannot validate a ranker that is fitted on `queries`; they must not share a group."""
    if held_out.y is None or held_out.feature_names != queries.feature_names:
        raise DataError("held-out queries must be judged and have the training features in the same order")
    find_leaks(queries, held_out, group=group).raise_if_seen(queries, held_out)


def validate(name: str, ranker: Ranker, queries: QuerySet, held_out: QuerySet) -> Validation:
    """Compare a fitted ranker with one model for all queries, and keep that model unless the ranker is better.

    `KinRanker` is compared with the better of one linear model and one tuned LightGBM model, and with itself without
    the queries' own models. Any other ranker is compared with one linear model.

    Parameters
    ----------
    name
        Name of the ranker in `RANKERS`.
    ranker
        The ranker, fitted on `queries`.
    queries
        The training queries; the other models are fitted on them, too.
    held_out
        Judged queries that are not in `queries`.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> found = validate("knn", KnnRanker(5).fit(camps[:40]), camps[:40], camps[40:])
    >>> found.kept_name, found.answer.verdict
    ('knn', 'gain')
    """
    own = evaluate_ranker(name, ranker, held_out, [MEASURE])
    rung = rung_of(ranker)
    if rung in ONE_MODEL:
        return Validation(name, ranker, name, MEASURE, len(held_out), {name: own.evaluation[MEASURE]})
    note = ""
    if rung == "kin":
        note = missing_trees(queries)
        rungs = climb(cast(KinRanker, ranker), queries, held_out, MEASURE, known={"kin": own})
    else:
        linear = evaluate_ranker(RUNGS["linear"], _linear_model(ranker, queries), held_out, [MEASURE])
        rungs = {"linear": linear, "local": own}
    answer = answer_of(rungs, MEASURE, note=note)
    assert answer is not None  # one linear model is always measured
    kept, kept_name = ranker, name
    if answer.verdict != "gain":
        one_model = next(each for each in rungs.values() if each.name == answer.gain.against)
        kept, kept_name = _ranker_of(one_model, queries), GLOBAL_RANKER
    means = {entrant.name: entrant.evaluation[MEASURE] for entrant in rungs.values()}
    return Validation(name, kept, kept_name, MEASURE, len(held_out), means, answer)


def _ranker_of(entrant: Entrant, queries: QuerySet) -> Ranker:
    """Return a ranker that can be saved: LightGBM behind our own interface is fitted again, with the same settings."""
    if rung_of(entrant.ranker) == "linear":
        return cast(Ranker, entrant.ranker)
    learner = cast(LightGBMPeer, entrant.ranker).learner()
    fitted: Ranker = SingleRanker(learner).fit(queries.only_weighted())  # as the peer
    return fitted


def _linear_model(ranker: Ranker, queries: QuerySet) -> Ranker:
    """Fit one linear model, with the learner and preprocessing of the ranker if it has them."""
    single = RANKERS[GLOBAL_RANKER]
    own = ranker.get_params(deep=False)
    shared = {name: own[name] for name in inspect.signature(single).parameters if name in own}
    if shared.get("learner") not in LEARNERS:  # a regressor of grades is not a learner of SingleRanker
        shared.pop("learner", None)
    fitted: Ranker = single(**shared).fit(queries)
    return fitted
