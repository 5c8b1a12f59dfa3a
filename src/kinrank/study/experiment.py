"""Fit, rank, measure and compare entrants on a test set or on folds, after checking for leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.progress import Parts
from kinrank.rankers import load
from kinrank.study._answer import Answer, NearAndFar
from kinrank.study._entrants import make_ranker, needs_fitting, origin_of, remembers
from kinrank.study._folds import Families, OnLeak, wanted_families
from kinrank.study._leaks import LeakReport
from kinrank.study._traffic import SplitInTime
from kinrank.study.comparison import Comparison, Entrant, Fittable
from kinrank.study.ladder import COSTS, DECISIVE, climb, missing_trees, rung_of, rungs_to_fit
from kinrank.study.study import Study


@dataclass(frozen=True, eq=False)
class Experiment:
    """A comparison, what it says about per-query ranking, and the leaks that were found."""

    comparison: Comparison
    leaks: tuple[LeakReport, ...]
    """One report per fold; empty without training queries."""
    unchecked: tuple[str, ...] = ()
    """Names of models whose training queries are unknown."""
    answer: Answer | None = None
    """What the ladder says about the first entrant with a model per query, in the first measure; None without one."""
    notes: tuple[str, ...] = ()
    """What someone who reads the results should know about the split."""

    @property
    def near_and_far(self) -> tuple[NearAndFar, ...]:
        """The differences in which a ranker remembers judgments, with a near training query and without one."""
        return self.comparison.near_and_far_with(self.answer)


def run_experiment(
    names: Sequence[str],
    queries: QuerySet,
    *,
    train: QuerySet | None = None,
    folds: int | None = None,
    group: str | None = None,
    measures: Sequence[Measure] = (NDCG @ 10,),
    baseline: str | None = None,
    leaks: OnLeak = "refuse",
    ladder: bool = True,
    seed: int = 0,
    evidence: SplitInTime | None = None,
    families: Families = None,
    engine: str | None = None,
) -> Experiment:
    """Fit, rank, measure and compare entrants.

    Parameters
    ----------
    names
        Rankers, other libraries, model folders and run files; see `kinrank.study._entrants.origin_of`.
    queries
        Judged test queries.
    train
        Judged queries to fit rankers on.
    folds
        Number of cross-validation folds of `queries`, instead of `train`.
    group
        Query column whose values are never split across folds or validation parts.
    measures, baseline
        As in `kinrank.study.comparison.compare`.
    leaks
        What to do with test queries seen in training: raise, drop them, or keep them.
    ladder
        Whether to fit the rungs of `kinrank.study.ladder` that `kin` is compared with, if they are not entrants.
    seed
        Seed for the fold split.
    evidence
        What people chose, split in time, for the rung of choices.
    families
        Whether queries with similar texts are never split across folds, and may vary together in tests: as in
        `kinrank.study.study.Study.split`. None: if an entrant remembers judgments or choices.
    engine
        The feature by which the engine ranks, or its logged rank: the engine is then the first entrant.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> found = run_experiment(["single", "knn(n_neighbors=5)"], make_two_camps(n_queries=60, seed=0), folds=3)
    >>> [round(entrant.evaluation[NDCG @ 10], 2) for entrant in found.comparison.entrants]
    [0.41, 1.0]
    """
    fitted = [name for name in names if needs_fitting(name)]  # unknown names raise before any work
    if train is not None and folds is not None:
        raise ParameterError("pass train= or folds=, not both")
    left_out = ""
    if leaks == "drop" and folds is None:
        queries, left_out = _not_learned(names, queries)
    used = wanted_families(families, queries, chain([evidence is not None], map(remembers, names)))
    if train is not None or folds is not None:
        judged, test = (queries, None) if train is None else (train, queries)
        study = Study.split(
            judged,
            test,
            folds=folds or 1,
            group=group,
            measures=measures,
            leaks=leaks,
            seed=seed,
            evidence=evidence,
            families=used,
        )
    elif fitted:
        raise ParameterError(f"{fitted[0]!r} must be fitted: pass train= or folds=")
    else:
        study = Study.of_test(queries, measures, group=group, leaks=leaks, evidence=evidence, families=used)
    rankers = {name: make_ranker(name, group=study.group) for name in fitted}
    rungs = _missing_rungs(rankers, study) if ladder else []
    n_folds = max(1, len(study.folds))
    progress = Parts(n_folds * (len(names) + sum(COSTS[rung] for rung in rungs)))
    entrants = [] if engine is None else [study.enter_engine(engine)]
    entrants += [study.enter(name, progress) for name in names]
    return Experiment(
        comparison=study.compare(entrants, baseline),
        leaks=study.reports,
        unchecked=study.unchecked(entrants),
        answer=_answer(entrants, rankers, rungs, study, progress),
        notes=(*filter(None, [left_out]), *study.notes),
    )


def _not_learned(names: Sequence[str], queries: QuerySet) -> tuple[QuerySet, str]:
    """Return the queries that no model was trained on, and which were left out, in words."""
    learned = np.zeros(len(queries), dtype=np.bool_)
    by = []
    for name in names:
        seen = load(name).learned_from(queries) if origin_of(name) == "model" else None
        if seen is not None and seen.any():
            learned |= seen
            by.append(f"{name} {seen.sum():,}")
    if learned.all():
        raise DataError(f"all {len(queries):,} test queries are in the training data of a model: test on other queries")
    if not by:
        return queries, ""
    dropped = f"{learned.sum():,} of {len(queries):,} test queries are left out: models were trained on them"
    return queries[~learned], f"{dropped} ({', '.join(by)})"


def _missing_rungs(rankers: Mapping[str, Fittable], study: Study) -> list[str]:
    """Return the rungs that decide about `kin` and are not entrants."""
    entered = [rung_of(ranker) or "" for ranker in rankers.values()]
    return rungs_to_fit(study, DECISIVE, entered) if "kin" in entered else []


def _answer(
    entrants: Sequence[Entrant],
    rankers: Mapping[str, Fittable],
    missing: Sequence[str],
    study: Study,
    progress: Parts,
) -> Answer | None:
    """Return what the ladder says; the rungs that decide and are not entrants are fitted on every fold."""
    rungs: dict[str, Entrant] = {}
    kin: Fittable | None = None
    for entrant in entrants:
        ranker = rankers.get(entrant.name, entrant.ranker)
        rung = rung_of(ranker)
        if rung is not None and rung not in rungs:
            rungs[rung] = entrant
            kin = ranker if rung == "kin" else kin
    note = ""
    if kin is not None and study.folds:
        note = missing_trees(study.folds[0].train)
        rungs = climb(kin, study, rungs=missing, measured=rungs, progress=progress)
    return study.answer(study.with_choices(rungs), note=note)
