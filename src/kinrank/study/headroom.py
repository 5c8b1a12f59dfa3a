"""Estimate what each part of kinrank would gain: the ladder on folds of the judged queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import NDCG, Measure, PairedComparison, evaluate
from kinrank.progress import Parts
from kinrank.rankers._local.choose import NeighborChoice, choose_neighbors
from kinrank.rankers._local.model import coefficients
from kinrank.rankers._local.training_sets import Shrinkage
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn import KnnRanker
from kinrank.study._answer import MIN_GAIN, RUNGS, Answer
from kinrank.study._entrants import evaluate_ranker, fit_and_evaluate, unjudged_in_top
from kinrank.study._folds import Families, OnLeak, inner_folds, wanted_families
from kinrank.study._leaks import LeakReport
from kinrank.study._traffic import SplitInTime
from kinrank.study.comparison import Comparison, Entrant
from kinrank.study.ladder import (
    COSTS,
    DETAILS,
    engine_feature,
    fit_rungs,
    ladder,
    missing_memory,
    missing_trees,
    rungs_to_fit,
)
from kinrank.study.study import Study

# --- the oracle: weights fitted to a query's own judgments -----------------------------------------------------------
#
# They are fitted to the query's own pairs, shrunk to the global model: w = (A_q / p_q + (λ + μ) I)⁻¹
# (b_q / p_q + μ w0), for several strengths μ. The oracle ranks the documents it was fitted on and takes the best μ for
# each query. It is an upper bound that no ranker reaches, and a loose one: with many features, a few documents can be
# put in any order.

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of μ; a larger μ approaches the global model."""


def scores_by_own_judgments(weights: Float64, penalty: float, queries: QuerySet, measure: Measure) -> Float64:
    """Return scores by the best weights of each query: its own at the best strength, or the global ones.

    The features of the queries are prepared for the global model, whose weights and penalty λ are given.
    """
    judged = queries.grades, queries.offsets, queries.doc_id, queries.sample_weight
    scores: Float64 = queries.X @ weights
    best = measure.per_query(scores, *judged)
    statistics = PairStatistics.from_queries(queries)
    for strength in STRENGTHS:
        own = statistics.solve(*Shrinkage(strength, weights).combine(penalty))
        tried = np.einsum("ij,ij->i", queries.X, own[queries.query_of_row])
        values = measure.per_query(tried, *judged)
        better = values > best
        scores = np.where(better[queries.query_of_row], tried, scores)
        best = np.where(better, values, best)
    return scores


# --- k and the strength of the prior, by cross-validation on the training queries -------------------------------------


NEIGHBORS = (5, 10, 25, 50, 100, 200, 400, 800)
PRIORS = (None, 0.03, 0.1, 0.3, 1.0)
_MAX_CHOOSING = 2000  # training queries that are used to choose


def sweep_neighbors(
    ranker: KnnRanker,
    folds: Iterable[tuple[QuerySet, QuerySet]],
    measure: Measure,
    *,
    counts: Sequence[int] = NEIGHBORS,
    strengths: Sequence[float | None] = PRIORS,
    enough: int = _MAX_CHOOSING,
) -> NeighborChoice:
    """Choose k and the strength of the prior by cross-validation, with all values in one pass.

    A k above half of the training queries of any fold is skipped. Folds after `enough` validation queries are skipped,
    and larger ones are subsampled.
    """
    choices: list[NeighborChoice] = []
    used = 0
    for train, held_out in folds:
        chosen = held_out
        if len(chosen) > enough:
            chosen = chosen[np.linspace(0, len(chosen) - 1, enough).astype(np.int64)]
        tried = [k for k in counts if k <= max(counts[0], len(train) // 2)]
        fitted = clone(ranker).set_params(n_neighbors=tried[-1]).fit(train)
        choice = choose_neighbors(fitted, chosen, tried, prior_strengths=strengths, measure=measure)
        if choice.n_queries:
            choices.append(choice)
        used += len(chosen)
        if used >= enough:
            break
    if not choices:
        raise DataError(f"no fold has queries with a value of {measure!r}: pass folds with relevant documents")
    weights = [choice.n_queries for choice in choices]

    def mean(values: Iterable[float]) -> float:
        return float(np.average(list(values), weights=weights))

    # A k that only larger folds allow would be measured on other queries than the rest.
    everywhere = [setting for setting in choices[0].quality if all(setting in choice.quality for choice in choices)]
    quality = {setting: mean(choice.quality[setting] for choice in choices) for setting in everywhere}
    k, strength = max(quality, key=quality.__getitem__)
    return NeighborChoice(k, strength, quality, mean(choice.single for choice in choices), sum(weights))


# --- the ladder on folds ----------------------------------------------------------------------------------------------


ORACLE = "oracle"
ENOUGH = 4000
"""Number of tested queries after which no further fold is measured with trees, by default."""
_LINEAR_ONLY = "Trees were not measured."


@dataclass(frozen=True, eq=False)
class Headroom:
    """What each rung of the ladder reaches, and upper bounds."""

    comparison: Comparison
    """The rungs of `kinrank.study.ladder` compared with one linear model, the baseline, on the test queries."""
    answer: Answer
    """What the rungs say."""
    oracle: Entrant
    """Each query ranked by the best weights fitted to its own judgments: an unreachable upper bound."""
    choices: tuple[NeighborChoice, ...]
    """k and prior of the linear models per query, chosen on the training queries, one per fold."""
    leaks: tuple[LeakReport, ...]
    """Leaks, one report per fold."""
    clean: PairedComparison | None
    """The gain of `answer` on queries without near-duplicates in training; None if no query, or every query, has one.
    """
    unjudged: float | None
    """Share of the top 10 candidates of the highest rung that are not judged; None if all known ones are judged."""
    n_folds: int
    n_queries: int
    """Number of folds and queries, including those that were not measured."""
    by: str = "query"
    """What folds and tests are by, in words."""
    notes: tuple[str, ...] = ()
    """What someone who reads the results should know about the split."""

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.comparison.measures[0]

    @property
    def means(self) -> dict[str, float]:
        """Mean of the measure for every rung and the oracle."""
        entrants = (*self.comparison.entrants, self.oracle)
        return {entrant.name: entrant.evaluation[self.measure] for entrant in entrants}


@dataclass(frozen=True, eq=False)
class _Part:
    """What linear models reach on one fold."""

    rungs: dict[str, Entrant]
    oracle: Entrant
    choice: NeighborChoice


def headroom(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    ranker: KinRanker | None = None,
    trees: bool = True,
    folds: int = 5,
    enough: int = ENOUGH,
    group: str | None = None,
    measure: Measure = NDCG @ 10,
    leaks: OnLeak = "refuse",
    min_gain: float = MIN_GAIN,
    seed: int = 0,
    evidence: SplitInTime | None = None,
    families: Families = None,
    engine: str | None = None,
    details: bool = False,
    on_first_answer: Callable[[Answer], None] = lambda _: None,
) -> Headroom:
    """Measure what the engine, LightGBM, memory and weights per query reach, one on top of the other.

    All rungs of `kinrank.study.ladder` are fitted on the same queries and measured on the same other queries. Shapes,
    numbers of trees, k and prior strength are chosen on the training queries, never on test queries.

    Parameters
    ----------
    queries
        Judged queries.
    test
        Judged test queries; by default `queries` are split into folds and each query is tested once.
    ranker
        The ranker at the top of the ladder; the others share its description and preparation of features. By default
        `KinRanker()`.
    trees
        Whether to measure trees. Without, the answer is about linear models only, and takes seconds. They are left out
        if LightGBM is not installed, or if grades are not whole numbers.
    folds
        Number of folds.
    enough
        Number of tested queries after which no further fold is measured, because trees take minutes.
    group
        Query column whose values are never split across folds.
    measure
        The measure.
    leaks
        What to do with test queries seen in training: raise, drop them, or keep them.
    min_gain
        Smallest gain that is worth having.
    seed
        Seed for the folds.
    evidence
        What people chose, split in time, for the rung of choices.
    families
        Whether queries with similar texts are never split across folds, and may vary together in tests: as in
        `kinrank.study.study.Study.split`. None: if a rung remembers judgments or choices.
    engine
        The feature by which the engine ranks; by default ``engine_score``, if there is one.
    details
        Whether to measure a bag of LightGBM models, too.
    on_first_answer
        Called with what the linear models say, before trees are measured.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> found = headroom(make_two_camps(n_queries=100, seed=0), trees=False)
    >>> {name: round(mean, 2) for name, mean in found.means.items()}
    {'one linear model': 0.48, 'a linear model per query': 1.0, 'oracle': 1.0}
    >>> found.answer.verdict
    'gain'
    """
    kin: KinRanker = clone(ranker) if ranker is not None else KinRanker()
    note = missing_trees(queries) if trees else _LINEAR_ONLY
    remembers = not note and (kin.capabilities.remembers or not missing_memory(queries, group))
    study = Study.split(
        queries,
        test,
        folds=folds,
        group=group,
        measures=[measure],
        leaks=leaks,
        seed=seed,
        enough=None if note else enough,
        evidence=evidence,
        families=wanted_families(families, queries, [remembers, evidence is not None]),
    )
    if kin.group_column is None:
        kin.set_params(group_column=study.group)
    engine = engine or engine_feature(queries)
    left_out = [*([] if engine else ["engine"]), *([] if details else DETAILS)]
    rungs_above = rungs_to_fit(study, ("engine",) if note else RUNGS, ("linear", "local", *left_out))
    progress = Parts(len(study.folds) * sum(COSTS[rung] for rung in ("linear", "local", *rungs_above)))
    parts = [_linear_part(kin, study, number, progress, seed) for number in range(len(study.folds))]
    by_rung = {rung: [part.rungs[rung] for part in parts] for rung in ("linear", "local")}
    first = study.answer({rung: study.pool(of_folds) for rung, of_folds in by_rung.items()}, min_gain=min_gain)
    if first is not None and not note:
        on_first_answer(first)
    by_rung |= fit_rungs(kin, study, rungs_above, progress, engine=engine)
    rungs = study.with_choices({rung: study.pool(by_rung[rung]) for rung in RUNGS if rung in by_rung})
    answer = study.answer(rungs, min_gain=min_gain, note=note or missing_memory(study.folds[0].train, study.group))
    assert answer is not None  # both linear rungs are always measured
    return Headroom(
        comparison=study.compare(list(rungs.values())),
        answer=answer,
        oracle=study.pool([part.oracle for part in parts]),
        choices=tuple(part.choice for part in parts),
        leaks=study.reports,
        clean=_clean(rungs, answer, study),
        unjudged=unjudged_in_top(study.queries, list(rungs.values())[-1].scores),
        n_folds=study.n_folds,
        n_queries=study.n_queries,
        by=study.by,
        notes=study.notes,
    )


def _linear_part(kin: KinRanker, study: Study, number: int, progress: Parts, seed: int) -> _Part:
    """Measure the linear rungs and the upper bounds on one fold."""
    train, test = study.folds[number].train, study.folds[number].test
    [measure] = study.measures
    made = ladder(kin)
    with progress.part(study.label(number, RUNGS["local"]), COSTS["local"]):
        start = time.perf_counter()
        template = cast(KnnRanker, made["local"]())
        choice = sweep_neighbors(template, inner_folds(train, group=study.group, seed=seed), measure)
        knn = choice.apply(template).fit(train)
        seconds = time.perf_counter() - start
        local = replace(evaluate_ranker(RUNGS["local"], knn, test, [measure]), fit_seconds=seconds)
    with progress.part(study.label(number, RUNGS["linear"]), COSTS["linear"]):
        linear = fit_and_evaluate(RUNGS["linear"], made["linear"](), train, test, [measure])
        by_all = coefficients(knn.global_), knn.learner_.penalty
        best = scores_by_own_judgments(*by_all, knn.preparer_.apply(test), measure)
    return _Part(
        rungs={"linear": linear, "local": local},
        oracle=Entrant(ORACLE, "oracle", best, evaluate(test, best, [measure])),
        choice=choice,
    )


def _clean(rungs: Mapping[str, Entrant], answer: Answer, study: Study) -> PairedComparison | None:
    """Return the gain on queries without near-duplicates in training; None if that is no query, or every query."""
    near = study.near_duplicates
    by_name = {entrant.name: entrant for entrant in rungs.values()}
    return study.difference_on(~near, by_name[answer.gain.name], by_name[answer.gain.against]) if near.any() else None
