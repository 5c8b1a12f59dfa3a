"""Compare a fitted ranker with one model for all queries on held-out queries, and keep that unless the ranker gains."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import cast

from kinrank.data.queryset import QuerySet
from kinrank.learn import LEARNERS
from kinrank.measure import Measure
from kinrank.progress import Parts
from kinrank.rankers import RANKERS, Ranker
from kinrank.rankers.single import SingleRanker
from kinrank.study._answer import ONE_MODEL, RUNGS, Answer
from kinrank.study._entrants import evaluate_ranker
from kinrank.study.comparison import Entrant
from kinrank.study.ladder import COSTS, DECISIVE, climb, missing_trees, rung_of, rungs_to_fit
from kinrank.study.peers import LightGBMPeer
from kinrank.study.study import Study

GLOBAL_RANKER = "single"


@dataclass(frozen=True, eq=False)
class Validation:
    """The result of `validate`."""

    name: str
    """Name of the validated ranker in `RANKERS`."""
    kept: Ranker
    """The ranker to use: the validated one if it gains, else the better model for all queries."""
    kept_name: str
    """Name of `kept` in `RANKERS`."""
    measure: Measure
    """The measure that decides."""
    n_queries: int
    """Number of held-out queries."""
    means: dict[str, float]
    """Mean of the measure for each ranker that was measured, by name."""
    answer: Answer | None = None
    """What the comparison says; None if the validated ranker is one model for all queries."""


def validate(name: str, ranker: Ranker, study: Study) -> Validation:
    """Compare a fitted ranker with one model for all queries, and keep that model unless the ranker is better.

    `KinRanker` is compared with the better of one linear model and one tuned LightGBM model, and with itself without
    weights per query. Any other ranker is compared with one linear model.

    Parameters
    ----------
    name
        Name of the ranker in `RANKERS`.
    ranker
        The ranker, fitted on the training queries of the study.
    study
        One fold: the training queries, on which the other models are fitted, too, and the held-out queries.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> study = Study.split(camps[:40], camps[40:])
    >>> found = validate("knn", KnnRanker(5).fit(camps[:40]), study)
    >>> found.kept_name, found.answer.verdict
    ('knn', 'gain')
    """
    queries, held_out, [measure] = study.folds[0].train, study.queries, study.measures
    validated = evaluate_ranker(name, ranker, held_out, [measure])
    rung = rung_of(ranker)
    if rung in ONE_MODEL:
        return Validation(name, ranker, name, measure, len(held_out), {name: validated.evaluation[measure]})
    note = ""
    if rung == "kin":
        note = missing_trees(queries)
        missing = rungs_to_fit(study, DECISIVE, ["kin"])
        progress = Parts(sum(COSTS[each] for each in missing))
        rungs = climb(ranker, study, rungs=missing, measured={"kin": validated}, progress=progress)
    else:
        linear = evaluate_ranker(RUNGS["linear"], _linear_model(ranker, queries), held_out, [measure])
        rungs = {"linear": linear, "local": validated}
    answer = study.answer(rungs, note=note)
    assert answer is not None  # one linear model is always measured
    kept, kept_name = ranker, name
    if answer.verdict != "gain":
        one_model = next(entrant for entrant in rungs.values() if entrant.name == answer.gain.against)
        kept, kept_name = _ranker_of(one_model, queries), GLOBAL_RANKER
    means = {entrant.name: entrant.evaluation[measure] for entrant in rungs.values()}
    return Validation(name, kept, kept_name, measure, len(held_out), means, answer)


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
    params = ranker.get_params(deep=False)
    shared = {name: params[name] for name in inspect.signature(single).parameters if name in params}
    if shared.get("learner") not in LEARNERS:  # a regressor of grades is not a learner of SingleRanker
        shared.pop("learner", None)
    fitted: Ranker = single(**shared).fit(queries)
    return fitted
