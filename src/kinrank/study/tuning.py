"""Choose a ranker, description, k and prior on the training queries, within a budget; resumable."""

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
from kinrank.study.added_rows import find_added_rows
from kinrank.study.leaks import find_leaks
from kinrank.study.sampler import sampled_proposal
from kinrank.study.space import Proposal, available_families, follow_up_proposals, listed_proposals
from kinrank.study.sweep import sweep_neighbors
from kinrank.study.trials import Trial, TrialLog, fingerprint

Folds = list[tuple[QuerySet, QuerySet]]


@dataclass(frozen=True)
class Plan:
    """What to try, for how long, and how to measure it.

    Attributes
    ----------
    families : sequence of str, optional
        Families of `kinrank.study.space.FAMILIES` to try; by default all that can be fitted.
    n_trials : int
        Maximum number of trials, including earlier runs.
    seconds : float, optional
        Seconds after which no new trial is started.
    folds : int
        Number of cross-validation folds, without validation queries.
    group : str, optional
        Query column whose values are never split across folds.
    reference : str or int, optional
        Feature whose top proposals describe a query.
    missing : str
        How to handle missing features; see `kinrank.SingleRanker`.
    measure : Measure
        Measure to maximize.
    seed : int
        Seed for folds and sampler.
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
    """Result of `tune`.

    Attributes
    ----------
    trials : tuple of Trial
        All trials, in order.
    best : Trial
        The best trial.
    stopped : str
        Why tuning stopped.
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
    """Try rankers on the training queries, or resume an interrupted study.

    Parameters
    ----------
    queries
        Judged training queries, without the test queries.
    folder
        Folder for the trials and the best settings.
    plan
        See `Plan`.
    validation
        Judged validation queries; by default folds of `queries`.
    on_trial
        Called with each new trial.

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
        raise ParameterError(
            f"n_trials must be at least 1 and seconds positive, got {plan.n_trials} and {plan.seconds}"
        )
    if validation is not None:
        find_leaks(queries, validation, group=plan.group).raise_if_seen(queries, validation)
    elif (added := find_added_rows(queries)) is not None:
        raise added.error()
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
    start = time.perf_counter()
    stopped = f"reached the limit of {plan.n_trials} trials"
    proposals = _proposals(queries, plan, log)
    while len(log.trials) < plan.n_trials:
        if plan.seconds is not None and log.trials and time.perf_counter() - start > plan.seconds:
            stopped = f"reached the limit of {plan.seconds:g} seconds"
            break
        try:
            proposal = next(proposals)
        except StopIteration:
            stopped = "no settings left to try"
            break
        except MissingExtraError as error:
            stopped = f"tried all listed settings; sampling more: {error}"
            break
        trial = _try(proposal, folds, plan.measure)
        log.add(trial)
        on_trial(trial)
    best = log.best
    if best is None:
        raise ParameterError("no ranker was tried: pass at least one family that can be fitted")
    return Tuning(tuple(log.trials), best, stopped)


def _proposals(queries: QuerySet, plan: Plan, log: TrialLog) -> Iterator[Proposal]:
    """Yield rankers that are not in the log: the list, variations of its best, then samples."""
    families = list(plan.families or available_families())
    shared: dict[str, Any] = {"reference": plan.reference, "group": plan.group, "missing": plan.missing}
    yield from _new(listed_proposals(queries, families, **shared), log)
    if "knn" not in families:
        return
    listed = [trial for trial in log.trials if trial.family == "knn" and trial.stage == "list"]
    best = max(listed, key=lambda trial: trial.quality).make()
    yield from _new(follow_up_proposals(cast(KnnRanker, best)), log)
    while True:
        earlier = [(trial.params, trial.quality) for trial in log.trials if trial.params is not None]
        yield sampled_proposal(queries, plan.reference, plan.missing, earlier, plan.seed)


def _new(proposals: Iterator[Proposal], log: TrialLog) -> Iterator[Proposal]:
    done = {trial.key for trial in log.trials}
    return (proposal for proposal in proposals if proposal.key not in done)


def _try(proposal: Proposal, folds: Folds, measure: Measure) -> Trial:
    start = time.perf_counter()
    ranker = clone(proposal.ranker)
    if proposal.sweep:
        knn = cast(KnnRanker, ranker)
        choice = sweep_neighbors(knn, folds, measure)
        ranker, quality = choice.apply(knn), max(choice.quality.values())
    else:
        values = map_ordered(current_executor(Serial()), _OnFold(ranker, measure), list(folds))
        quality = mean_of(np.concatenate(list(values)))
    seconds = time.perf_counter() - start
    return Trial(proposal.key, proposal.family, proposal.stage, settings_of(ranker), quality, seconds, proposal.params)


@dataclass(frozen=True, eq=False)
class _OnFold:
    """Evaluates a ranker on one fold, possibly in another process."""

    ranker: Any
    measure: Measure

    def __call__(self, fold: tuple[QuerySet, QuerySet]) -> Float64:
        train, held_out = fold
        return per_query_values(clone(self.ranker).fit(train), held_out, self.measure)


def per_query_values(ranker: Any, queries: QuerySet, measure: Measure) -> Float64:
    """Return the measure of each query for a fitted ranker."""
    return measure.per_query(ranker.predict(queries), queries.grades, queries.offsets, queries.doc_id)


@dataclass(frozen=True, eq=False)
class Nested:
    """Quality of tuning itself, on queries that were used neither to fit nor to choose the ranker.

    Attributes
    ----------
    tuned, single : float64 arrays of shape (queries,)
        Measure of the ranker tuned on the other folds, and of one linear model fitted on them.
    tunings : tuple of Tuning
        One per outer fold.
    """

    tuned: Float64
    single: Float64
    tunings: tuple[Tuning, ...]

    @property
    def means(self) -> tuple[float, float]:
        """Mean of the measure for the tuned rankers and for the linear models."""
        return mean_of(self.tuned), mean_of(self.single)

    @property
    def gain(self) -> PairedComparison:
        """The tuned rankers compared with the linear models."""
        return compare_paired(self.tuned, self.single)


def nested(
    queries: QuerySet,
    folder: str | Path,
    plan: Plan | None = None,
    *,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> Nested:
    """Tune and fit on each outer training part, and measure on the outer test part.

    Parameters
    ----------
    queries, folder, plan, on_trial
        As in `tune`; each outer fold has its own folder and budget.
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
