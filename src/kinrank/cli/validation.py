"""What a new ranker reaches on held-out queries, and whether one model for all would have done as well."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from kinrank.data.queryset import QuerySet
from kinrank.learn import LEARNERS
from kinrank.measure import NDCG, compare_paired, evaluate
from kinrank.rankers import RANKERS, Ranker

GLOBAL_RANKER = "single"
LEVEL = 0.05
MEASURE = NDCG @ 10


@dataclass(frozen=True)
class Validation:
    """What to keep, under which name in `RANKERS`, and sentences that say why."""

    name: str
    ranker: Ranker
    said: list[str]


def validate(name: str, ranker: Ranker, queries: QuerySet, held_out: QuerySet) -> Validation:
    """Hold a fitted ranker against the global model, which is kept where the ranker gains nothing.

    Parameters
    ----------
    name
        The name of the ranker in `RANKERS`.
    ranker
        Fitted on `queries`.
    queries
        What the global model is fitted on, too.
    held_out
        Judged queries that neither has seen.
    """
    values = evaluate(held_out, ranker.predict(held_out), [MEASURE])
    said = f"{len(held_out):,} queries, {MEASURE!r}: {name} {values[MEASURE]:.4f}"
    if name == GLOBAL_RANKER:
        return Validation(name, ranker, [said])
    simple = _global_model(ranker, queries)
    baseline = evaluate(held_out, simple.predict(held_out), [MEASURE])
    said += f", global model {baseline[MEASURE]:.4f}"
    test = compare_paired(values.per_query[MEASURE], baseline.per_query[MEASURE])
    low, high = test.interval
    difference = (
        f"{test.mean_difference:+.4f} ({test.confidence:.0%}: {low:+.4f} to {high:+.4f}, paired t p = {test.p:.2g})"
    )
    if test.p <= LEVEL and test.mean_difference > 0:
        return Validation(name, ranker, [said, f"{difference}: a gain"])
    found = "no difference to rely on" if test.p > LEVEL else "a loss"
    kept = f"so the global model is kept; without --validate {name} is written all the same"
    return Validation(GLOBAL_RANKER, simple, [said, f"{difference}: {found}, {kept}"])


def _global_model(ranker: Ranker, queries: QuerySet) -> Ranker:
    """One model for all queries, with the learner and the preparation of the ranker where it has them."""
    single = RANKERS[GLOBAL_RANKER]
    own = ranker.get_params(deep=False)
    shared = {name: own[name] for name in inspect.signature(single).parameters if name in own}
    if shared.get("learner") not in LEARNERS:  # what fits grades, not orders, is no learner of Single
        shared.pop("learner", None)
    fitted: Ranker = single(**shared).fit(queries)
    return fitted
