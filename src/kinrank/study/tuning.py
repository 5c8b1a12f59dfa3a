"""Choosing ranker, description, k and prior on the training queries alone, within a budget, resumable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_queries
from kinrank.errors import MissingExtraError, ParameterError
from kinrank.learn.prepare import Missing
from kinrank.measure import NDCG, Measure, PairedComparison, compare_paired
from kinrank.measure.base import mean_of
from kinrank.parallel import Serial, current_executor, map_ordered
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.persistence import settings_of
from kinrank.rankers.single import SingleRanker
from kinrank.study.leaks import find_leaks
from kinrank.study.sampler import sampled_candidate
from kinrank.study.space import Candidate, available_families, first_candidates, follow_ups
from kinrank.study.sweep import sweep_neighbors
from kinrank.study.trials import Trial, TrialLog, fingerprint

Folds = list[tuple[QuerySet, QuerySet]]


@dataclass(frozen=True)
class Plan:
    """How to tune.

    Attributes
    ----------
    families : sequence of str, optional
        What to try, of `kinrank.study.space.FAMILIES`; all that can be fitted where not given.
    n_trials : int
        The most trials, those of earlier runs included.
    seconds : float, optional
        No trial is begun after so long.
    folds : int
        Of cross-validation, where there are no validation queries.
    group : str, optional
        The query column that folds keep together.
    reference : str or int, optional
        The feature whose best candidates describe a query.
    missing : str
        What a missing feature becomes; see `kinrank.SingleRanker`.
    measure : Measure
        What to maximize.
    seed : int
        Of folds and sampler.
    """

    families: Sequence[str] | None = None
    n_trials: int = 25
    seconds: float | None = None
    folds: int = 5
    group: str | None = None
    reference: str | int | None = None
    missing: Missing = "error"
    measure: Measure = NDCG @ 10
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was tried.

    Attributes
    ----------
    trials : tuple of Trial
        All of them, in order.
    best : Trial
        The best.
    stopped : str
        Why no more were tried.
    """

    trials: tuple[Trial, ...]
    best: Trial
    stopped: str


def tune(
    queries: QuerySet,
    folder: str | Path,
    plan: Plan | None = None,
    *,
    validation: QuerySet | None = None,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> Tuning:
    """Try rankers on the training queries; a study that was stopped goes on where it was.

    Parameters
    ----------
    queries
        Judged training queries. Keep the test queries out.
    folder
        Where trials and the best settings are kept.
    plan
        What to try, for how long, and how to judge it.
    validation
        Judged queries to choose by; folds of `queries` where not given.
    on_trial
        Called with every new trial.

    Examples
    --------
    >>> import tempfile
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> tuned = tune(camps, tempfile.mkdtemp(), Plan(families=["single", "knn"], n_trials=5))
    >>> tuned.best.family, tuned.best.quality
    ('knn', 1.0)
    """
    plan = plan or Plan()
    if plan.n_trials < 1 or (plan.seconds is not None and plan.seconds <= 0):
        raise ParameterError(f"a budget is one trial and some time at least, got {plan.n_trials} and {plan.seconds}")
    if validation is not None:
        find_leaks(queries, validation, group=plan.group).raise_if_seen(queries, validation)
    folds: Folds = (
        [(queries, validation)]
        if validation is not None
        else list(fold_queries(queries, plan.folds, group=plan.group, seed=plan.seed))
    )
    protocol = {
        "data": fingerprint(queries),
        "validation": f"{plan.folds} folds by {plan.group or 'query'}"
        if validation is None
        else fingerprint(validation),
        "measure": repr(plan.measure),
        "seed": plan.seed,
        "reference": plan.reference,
        "missing": plan.missing,
    }
    log = TrialLog(folder, protocol)
    began = time.perf_counter()
    stopped = f"reached the limit of {plan.n_trials} trials"
    proposals = _proposals(queries, plan, log)
    while len(log.trials) < plan.n_trials:
        if plan.seconds is not None and log.trials and time.perf_counter() - began > plan.seconds:
            stopped = f"reached the limit of {plan.seconds:g} seconds"
            break
        try:
            candidate = next(proposals)
        except StopIteration:
            stopped = "no settings left to try"
            break
        except MissingExtraError as error:
            stopped = f"tried all listed settings; sampling more: {error}"
            break
        trial = _try(candidate, folds, plan.measure)
        log.add(trial)
        on_trial(trial)
    best = log.best
    if best is None:
        raise ParameterError("nothing was tried: name at least one family that can be fitted")
    return Tuning(tuple(log.trials), best, stopped)


def _proposals(queries: QuerySet, plan: Plan, log: TrialLog) -> Iterator[Candidate]:
    """Candidates that are not in the log: the list, what follows from the best of it, then what a sampler draws."""
    families = list(plan.families or available_families())
    shared: dict[str, Any] = {"reference": plan.reference, "group": plan.group, "missing": plan.missing}
    yield from _new(first_candidates(queries, families, **shared), log)
    if "knn" not in families:
        return
    listed = [trial for trial in log.trials if trial.family == "knn" and trial.stage == "list"]
    best = max(listed, key=lambda trial: trial.quality).make()
    yield from _new(follow_ups(cast(KnnRanker, best)), log)
    while True:
        earlier = [(trial.params, trial.quality) for trial in log.trials if trial.params is not None]
        yield sampled_candidate(queries, plan.reference, plan.missing, earlier, plan.seed)


def _new(candidates: Iterator[Candidate], log: TrialLog) -> Iterator[Candidate]:
    done = {trial.key for trial in log.trials}
    return (candidate for candidate in candidates if candidate.key not in done)


def _try(candidate: Candidate, folds: Folds, measure: Measure) -> Trial:
    start = time.perf_counter()
    ranker = clone(candidate.ranker)
    if candidate.sweep:
        knn = cast(KnnRanker, ranker)
        choice = sweep_neighbors(knn, folds, measure)
        ranker, quality = choice.apply(knn), max(choice.quality.values())
    else:
        values = map_ordered(current_executor(Serial()), _OnFold(ranker, measure), list(folds))
        quality = mean_of(np.concatenate(list(values)))
    seconds = time.perf_counter() - start
    return Trial(
        candidate.key, candidate.family, candidate.stage, settings_of(ranker), quality, seconds, candidate.params
    )


@dataclass(frozen=True, eq=False)
class _OnFold:
    """What a ranker reaches on one fold: a piece of work of its own, wherever it is done."""

    ranker: Any
    measure: Measure

    def __call__(self, fold: tuple[QuerySet, QuerySet]) -> Float64:
        train, held_out = fold
        return per_query_values(clone(self.ranker).fit(train), held_out, self.measure)


def per_query_values(ranker: Any, queries: QuerySet, measure: Measure) -> Float64:
    """The measure of each query by a fitted ranker."""
    return measure.per_query(ranker.predict(queries), queries.grades, queries.offsets, queries.doc_id)


@dataclass(frozen=True, eq=False)
class Nested:
    """What tuning itself reaches, on queries that neither fitted nor chose the ranker.

    Attributes
    ----------
    tuned, single : float64 arrays of shape (queries,)
        The measure by the ranker that was tuned on the other folds, and by one linear model of them.
    tunings : tuple of Tuning
        One per outer fold.
    """

    tuned: Float64
    single: Float64
    tunings: tuple[Tuning, ...]

    @property
    def means(self) -> tuple[float, float]:
        """The measure of the tuned rankers and of the linear ones."""
        return mean_of(self.tuned), mean_of(self.single)

    @property
    def gain(self) -> PairedComparison:
        """The tuned rankers against the linear ones."""
        return compare_paired(self.tuned, self.single)


def nested(
    queries: QuerySet,
    folder: str | Path,
    plan: Plan | None = None,
    *,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> Nested:
    """Tune on each outer training part, fit the winner there, and measure it on the outer test part.

    Parameters
    ----------
    queries, folder, plan, on_trial
        As in `tune`; every outer fold has a folder and a budget of its own.
    """
    plan = plan or Plan()
    tuned, single = np.full(len(queries), np.nan), np.full(len(queries), np.nan)
    tunings = []
    for number, (train, test) in enumerate(fold_queries(queries, plan.folds, group=plan.group, seed=plan.seed)):
        tunings.append(tune(train, Path(folder) / f"outer-{number}", plan, on_trial=on_trial))
        here = np.isin(queries.qid, test.qid)
        tuned[here] = per_query_values(tunings[-1].best.make().fit(train), test, plan.measure)
        single[here] = per_query_values(SingleRanker("rankrls", missing=plan.missing).fit(train), test, plan.measure)
    return Nested(tuned, single, tuple(tunings))
