"""Choose a ranker, description, k and prior on the training queries, within a budget; resumable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import MissingExtraError, ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.prepare import Missing
from kinrank.measure import NDCG, Measure, compare_paired
from kinrank.measure.base import mean_of
from kinrank.parallel import Serial, current_executor, map_ordered
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.persistence import settings_of
from kinrank.rankers.single import SingleRanker
from kinrank.study.answer import ONE_MODEL, RUNGS, Answer, Claim, answer
from kinrank.study.folds import OnLeak
from kinrank.study.ladder import missing_trees, rung_of
from kinrank.study.space import (
    Proposal,
    available_families,
    follow_up_proposals,
    listed_proposals,
    sampled_proposal,
    without_local_models,
)
from kinrank.study.study import Study
from kinrank.study.sweep import sweep_neighbors, sweep_trees
from kinrank.study.trials import Trial, TrialLog

Folds = list[tuple[QuerySet, QuerySet]]


@dataclass(frozen=True)
class Plan:
    """What to try, for how long, and how to measure it."""

    families: Sequence[str] | None = None
    """Families of `kinrank.study.space.FAMILIES` to try; by default all that can be fitted."""
    n_trials: int = 25
    """Maximum number of trials, including earlier runs."""
    seconds: float | None = None
    """Seconds after which no new trial is started."""
    folds: int = 5
    """Number of cross-validation folds, without validation queries."""
    group: str | None = None
    """Query column whose values are never split across folds."""
    reference: str | int | None = None
    """Feature whose top proposals describe a query."""
    missing: Missing = "mean"
    """How to handle missing features; see `kinrank.SingleRanker`."""
    measure: Measure = NDCG @ 10
    """Measure to maximize."""
    leaks: OnLeak = "refuse"
    """What to do with validation queries seen in training: raise, drop them, or keep them."""
    seed: int = 0
    """Seed for folds and sampler."""

    def study(self, queries: QuerySet, test: QuerySet | None = None) -> Study:
        """Split the queries, and check them for leaks."""
        return Study.split(
            queries, test, folds=self.folds, group=self.group, measures=[self.measure], leaks=self.leaks, seed=self.seed
        )


@dataclass(frozen=True, eq=False)
class Tuning:
    """Result of `tune`."""

    trials: tuple[Trial, ...]
    """All trials, in order."""
    best: Trial
    """The best trial."""
    stopped: str
    """Why tuning stopped."""
    answer: Answer | None = None
    """What the best trial of each rung of `kinrank.study.ladder` says, on the queries they were chosen by; None if no
    ranker with a model per query was tried, or none with one model for all.
    """

    @property
    def best_by_rung(self) -> dict[str, Trial]:
        """The best trial of each rung of the ladder."""
        return best_by_rung(self.trials)


def best_by_rung(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Return the best trial of each rung of the ladder.

    That of "without" is the best of "kin" without the queries' own models, so that nothing else differs.
    """
    best: dict[str, Trial] = {}
    for trial in trials:
        rung = rung_of(trial.make())
        if rung is not None and rung != "without" and (rung not in best or trial.quality > best[rung].quality):
            best[rung] = trial
    if "kin" in best:
        lacking = without_local_models(cast(KinRanker, best["kin"].make())).key
        found = next((trial for trial in trials if trial.key == lacking), None)
        if found is not None:
            best["without"] = found
    return best


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
    study = plan.study(queries, validation)
    folds: Folds = [(fold.train, fold.test) for fold in study.folds]
    protocol = {
        "data": queries.fingerprint()[:16],
        "validation": f"{plan.folds} folds by {plan.group or 'query'}"
        if validation is None
        else validation.fingerprint()[:16],
        **({} if plan.leaks == "refuse" else {"leaks": plan.leaks}),
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
        trial, values = _try(proposal, folds, plan.measure)
        log.add(trial, values)
        on_trial(trial)
    best = log.best
    if best is None:
        raise ParameterError("no ranker was tried: pass at least one family that can be fitted")
    rungs = {rung: log.values(trial) for rung, trial in best_by_rung(log.trials).items()}
    note = "" if plan.families else missing_trees(queries)
    return Tuning(tuple(log.trials), best, stopped, answer(rungs, groups=study.groups_by_fold, note=note))


def _proposals(queries: QuerySet, plan: Plan, log: TrialLog) -> Iterator[Proposal]:
    """Yield rankers that are not in the log: the list, variations of its best, then samples."""
    families = list(plan.families or available_families(queries))
    shared: dict[str, Any] = {"reference": plan.reference, "group": plan.group, "missing": plan.missing}
    yield from _new(listed_proposals(queries, families, **shared), log)
    if "kin" in families:
        yield from _new(iter([without_local_models(_best_listed(log, "kin"))]), log)
    if "knn" not in families:
        return
    yield from _new(follow_up_proposals(_best_listed(log, "knn")), log)
    while True:
        earlier = [(trial.params, trial.quality) for trial in log.trials if trial.params is not None]
        yield sampled_proposal(queries, plan.reference, plan.missing, earlier, plan.seed)


def _best_listed(log: TrialLog, family: str) -> Any:
    """Return the unfitted ranker of the best trial of the list; the family tells its class."""
    listed = [trial for trial in log.trials if trial.family == family and trial.stage == "list"]
    return max(listed, key=lambda trial: trial.quality).make()


def _new(proposals: Iterator[Proposal], log: TrialLog) -> Iterator[Proposal]:
    done = {trial.key for trial in log.trials}
    return (proposal for proposal in proposals if proposal.key not in done)


def _try(proposal: Proposal, folds: Folds, measure: Measure) -> tuple[Trial, Float64]:
    """Return the trial, and the measure of every query."""
    start = time.perf_counter()
    ranker = clone(proposal.ranker)
    if proposal.sweep and proposal.family == "lambdamart":
        trees: LambdaMART = ranker.learner
        ranker.set_params(learner=clone(trees).set_params(n_trees=sweep_trees(trees, folds)))
    elif proposal.sweep:
        knn: KnnRanker = ranker
        ranker = sweep_neighbors(knn, folds, measure).apply(knn)
    measured = map_ordered(current_executor(Serial()), _OnFold(ranker, measure), list(folds))
    values = np.concatenate(list(measured))
    seconds = time.perf_counter() - start
    identity = proposal.key, proposal.family, proposal.stage, settings_of(ranker)
    return Trial(*identity, mean_of(values), seconds, proposal.params), values


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
    scores = ranker.predict(queries)
    return measure.per_query(scores, queries.grades, queries.offsets, queries.doc_id, queries.sample_weight)


@dataclass(frozen=True, eq=False)
class Nested:
    """Quality of tuning itself, on queries that were used neither to fit nor to choose the ranker."""

    tuned: Float64
    """Measure of the ranker tuned on the other folds; shape (queries,)."""
    rungs: dict[str, Float64]
    """Measure of the best trial of each rung of `kinrank.study.ladder`, tuned on the other folds. One linear model is
    always among them; shape (queries,).
    """
    tunings: tuple[Tuning, ...]
    """One per outer fold."""
    groups: NDArray[Any] | None = None
    """Group of each query; queries of a group may vary together; shape (queries,)."""

    @property
    def gain(self) -> Claim:
        """The tuned rankers compared with the better of the rungs with one model for all queries."""
        best = max((rung for rung in ONE_MODEL if rung in self.rungs), key=lambda rung: mean_of(self.rungs[rung]))
        paired = compare_paired(self.tuned, self.rungs[best], groups=self.groups)
        return Claim("the tuned ranker", RUNGS[best], paired)

    @property
    def answer(self) -> Answer | None:
        """What the rungs say."""
        return answer(self.rungs, groups=self.groups)


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
    study = plan.study(queries)
    tuned: list[Float64] = []
    rungs: list[dict[str, Float64]] = []
    tunings = []
    for number, fold in enumerate(study.folds):
        tuning = tune(fold.train, Path(folder) / f"outer-{number}", plan, on_trial=on_trial)
        tunings.append(tuning)
        chosen = {rung: trial.make() for rung, trial in tuning.best_by_rung.items()}
        chosen.setdefault("linear", SingleRanker("rankrls", missing=plan.missing))
        on_fold = (fold.train, fold.test)
        rungs.append({rung: _OnFold(ranker, plan.measure)(on_fold) for rung, ranker in chosen.items()})
        tuned.append(_OnFold(tuning.best.make(), plan.measure)(on_fold))
    everywhere = [rung for rung in rungs[0] if all(rung in part for part in rungs)]
    return Nested(
        np.concatenate(tuned),
        {rung: np.concatenate([part[rung] for part in rungs]) for rung in everywhere},
        tuple(tunings),
        study.groups_by_fold,
    )
