"""One study: split and check, fit, measure, compare, answer. Every verdict of kinrank comes from a `Study`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.errors import DataError, LeakError, ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.progress import Parts
from kinrank.rankers import Ranker, load
from kinrank.study.answer import CHOICES, MIN_GAIN, Answer, TrafficAnswer, answer, subject_of
from kinrank.study.comparison import Comparison, Entrant, Fittable, Pairs, compare
from kinrank.study.entrants import evaluate_ranker, evaluate_run, fit_and_evaluate, make_ranker, origin_of, pool_folds
from kinrank.study.folds import Fold, OnLeak, checked_folds
from kinrank.study.leaks import LeakReport
from kinrank.study.traffic import SplitInTime


@dataclass(frozen=True, eq=False)
class Study:
    """Judged queries in training and test parts that were checked for leaks.

    Make one with `split` or, if nothing is fitted, with `of_test`.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> study = Study.split(make_two_camps(n_queries=60, seed=0), folds=3)
    >>> entrants = [study.enter(name) for name in ("single", "knn(n_neighbors=5)")]
    >>> study.compare(entrants)
    Comparison(60 queries, NDCG @ 10: single, knn(n_neighbors=5))
    """

    folds: tuple[Fold, ...]
    """Training and test queries; empty if nothing is fitted."""
    queries: QuerySet
    """The test queries of all folds, in their original order."""
    measures: tuple[Measure, ...] = (NDCG @ 10,)
    """The measures; the first decides."""
    group: str | None = None
    """Query column whose values are never split, and may vary together in tests."""
    leaks: OnLeak = "refuse"
    """What was done with test queries seen in training."""
    n_folds: int = 1
    n_queries: int = 0
    """Number of folds and queries, including those that are left out because enough others are measured."""
    evidence: SplitInTime | None = None
    """What people chose, and the first day of the queries that are measured by traffic; None without."""

    @classmethod
    def split(
        cls,
        queries: QuerySet,
        test: QuerySet | None = None,
        *,
        folds: int = 5,
        group: str | None = None,
        measures: Sequence[Measure] = (NDCG @ 10,),
        leaks: OnLeak = "refuse",
        seed: int = 0,
        enough: int | None = None,
        evidence: SplitInTime | None = None,
    ) -> Study:
        """Split queries into folds, or take given test queries, and check for leaks.

        Parameters
        ----------
        queries
            Judged queries to train on, or to split into folds.
        test
            Judged test queries.
        folds, seed
            Number of folds, and seed of their split.
        group
            Query column whose values are never split.
        measures
            Measures; the first decides.
        leaks
            What to do with test queries seen in training: raise, drop them, or keep them.
        enough
            Number of tested queries after which further folds are left out.
        evidence
            What people chose, split in time.
        """
        if test is not None and (test.y is None or test.feature_names != queries.feature_names):
            raise DataError("test queries must be judged and have the training features in the same order")
        used: list[Fold] = []
        for fold in checked_folds(queries, test, folds=folds, group=group, leaks=leaks, seed=seed):
            used.append(fold)
            if enough is not None and sum(len(each.test) for each in used) >= enough:
                break
        source = queries if test is None else test
        positions = np.sort(np.concatenate([fold.positions for fold in used]))
        n_folds = folds if test is None else 1
        return cls(tuple(used), source[positions], tuple(measures), group, leaks, n_folds, len(source), evidence)

    @classmethod
    def of_test(
        cls,
        queries: QuerySet,
        measures: Sequence[Measure] = (NDCG @ 10,),
        *,
        leaks: OnLeak = "refuse",
        evidence: SplitInTime | None = None,
    ) -> Study:
        """Study models and runs that exist. Queries that a model was trained on are refused."""
        return cls((), queries, tuple(measures), None, leaks, n_queries=len(queries), evidence=evidence)

    @property
    def reports(self) -> tuple[LeakReport, ...]:
        """The leaks of each fold."""
        return tuple(fold.leaks for fold in self.folds)

    @property
    def near(self) -> NDArray[np.bool_]:
        """Which test queries have a near-duplicate in training."""
        near = np.concatenate([fold.near for fold in self.folds])
        return near[np.argsort(np.concatenate([fold.positions for fold in self.folds]))]

    @property
    def groups(self) -> NDArray[np.generic] | None:
        """The group of each test query; None if queries vary independently."""
        return None if self.group is None else groups_of(self.queries, self.group)

    @property
    def groups_by_fold(self) -> NDArray[np.generic] | None:
        """The group of each test query, fold by fold."""
        return None if self.group is None else np.concatenate([groups_of(fold.test, self.group) for fold in self.folds])

    def enter(self, text: str, progress: Parts | None = None) -> Entrant:
        """Measure the ranker, model folder or run that a text names; see `kinrank.study.entrants.origin_of`."""
        origin = origin_of(text)
        if origin in ("ranker", "peer"):
            parts = self.fit(text, lambda: make_ranker(text, group=self.group), progress)
            return replace(self.pool(parts), origin=origin)
        with (progress or Parts(1)).part(text, max(1, len(self.folds))):
            if origin == "run":
                return evaluate_run(text, self.queries, self.measures)
            model: Fittable = load(text)
            self._check(text, model, self.queries)
            return replace(evaluate_ranker(text, model, self.queries, self.measures), origin=origin)

    def _check(self, name: str, model: Fittable, queries: QuerySet) -> None:
        """Raise if a model was trained on test queries."""
        seen = model.learned_from(queries)
        if seen is not None and seen.any() and self.leaks != "warn":
            raise LeakError(
                f"{name}: {seen.sum():,} of {len(seen):,} test queries are in this model's training data, "
                f"for example {queries.qid[seen][0].item()!r}: test on other queries"
            )

    def unchecked(self, entrants: Sequence[Entrant]) -> tuple[str, ...]:
        """Return the names of models whose training queries are unknown, so that they could not be checked."""
        models = (each for each in entrants if each.origin == "model")
        return tuple(sorted(each.name for each in models if each.learned_from(self.queries) is None))

    def fit(self, name: str, make: Callable[[], Fittable], progress: Parts | None = None) -> list[Entrant]:
        """Fit a ranker on the training queries of each fold and measure it on the test queries.

        Parameters
        ----------
        name
            Name of the entrant.
        make
            Returns an unfitted ranker.
        progress
            Progress of the whole study.
        """
        if not self.folds:
            raise ParameterError(f"{name!r} must be fitted: pass train= or folds=")
        return [self.fit_on(number, name, make(), progress) for number in range(len(self.folds))]

    def fit_on(
        self, number: int, name: str, ranker: Fittable, progress: Parts | None = None, cost: float = 1.0
    ) -> Entrant:
        """Fit a ranker on the training queries of one fold and measure it on the test queries."""
        fold = self.folds[number]
        with (progress or Parts(1)).part(self.label(number, name), cost):
            entrant = fit_and_evaluate(name, ranker, fold.train, fold.test, self.measures)
        self._check(name, ranker, fold.test)
        return entrant

    def label(self, fold: int, name: str) -> str:
        """Return what the progress bar shows while a fold is measured."""
        return f"fold {fold + 1} of {len(self.folds)}, {name}" if len(self.folds) > 1 else name

    def pool(self, parts: Sequence[Entrant]) -> Entrant:
        """Combine the entrants of all folds: each query is scored by the model not fitted on it."""
        if len(parts) == 1:
            return parts[0]
        return pool_folds(parts[0].name, parts, self.queries, self._rows(), self.measures)

    def _rows(self) -> list[Int64]:
        """Return the positions of the rows of each fold."""
        positions = np.sort(np.concatenate([fold.positions for fold in self.folds]))
        return [self.queries.rows_of(np.searchsorted(positions, fold.positions)) for fold in self.folds]

    def with_choices(self, rungs: Mapping[str, Entrant]) -> dict[str, Entrant]:
        """Add the rung of choices on top of the highest ranker with a model per query, if there is evidence."""
        subject = subject_of(rungs)
        if self.evidence is None or subject is None:
            return dict(rungs)
        wrapped = rungs[subject]
        measured = []
        for (train, test), part in zip(self._parts(), wrapped.parts or (wrapped,), strict=True):
            if not isinstance(part.ranker, Ranker):
                return dict(rungs)
            ranker = self.evidence.fit(part.ranker, train, test)
            measured.append(evaluate_ranker(f"choices around {wrapped.name}", ranker, test, self.measures))
        return {**rungs, CHOICES: self.pool(measured)}

    def _parts(self) -> list[tuple[QuerySet | None, QuerySet]]:
        """Return training and test queries of each fold; without folds, the test queries."""
        return [(fold.train, fold.test) for fold in self.folds] or [(None, self.queries)]

    def _traffic(self, rungs: Mapping[str, Entrant], min_gain: float) -> TrafficAnswer | None:
        """Return what the rung of choices gains by traffic."""
        subject = subject_of(rungs)
        if self.evidence is None or subject is None or CHOICES not in rungs:
            return None
        by_fold = [self.evidence.recurrence(train, test) for train, test in self._parts()]
        recurrence = by_fold[0]
        if self.folds:
            recurrence = np.concatenate(by_fold)[np.argsort(np.concatenate([fold.positions for fold in self.folds]))]
        sides = rungs[CHOICES], rungs[subject]
        return self.evidence.answer(
            self.queries,
            recurrence,
            (sides[0].name, sides[1].name),
            (sides[0].per_query(self.measures[0]), sides[1].per_query(self.measures[0])),
            self.groups,
            min_gain,
        )

    def compare(
        self, entrants: Sequence[Entrant], baseline: str | None = None, pairs: Pairs = "baseline"
    ) -> Comparison:
        """Compare entrants on all test queries; see `kinrank.study.comparison.compare`."""
        return compare(self.queries, entrants, baseline=baseline, pairs=pairs, groups=self.groups)

    def answer(self, rungs: Mapping[str, Entrant], *, min_gain: float = MIN_GAIN, note: str = "") -> Answer | None:
        """Return what the rungs of the ladder say in the first measure, under the names of their entrants."""
        values = {rung: entrant.per_query(self.measures[0]) for rung, entrant in rungs.items()}
        names = {rung: entrant.name for rung, entrant in rungs.items()}
        choices = self._traffic(rungs, min_gain)
        return answer(values, names, groups=self.groups, min_gain=min_gain, note=note, choices=choices)
