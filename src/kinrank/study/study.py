"""One study: split and check, fit, measure, compare, answer. Every verdict of kinrank comes from a `Study`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of, note_on_large_group
from kinrank.data.texts import TEXT
from kinrank.errors import DataError, LeakError, ParameterError
from kinrank.kin.letters import FAMILY
from kinrank.measure import NDCG, Measure, PairedComparison, compare_paired
from kinrank.progress import Parts
from kinrank.rankers import Ranker, load
from kinrank.study._answer import CHOICES, MIN_GAIN, RUNGS, Answer, NearAndFar, TrafficAnswer, answer, subject_of
from kinrank.study._entrants import evaluate_ranker, evaluate_run, fit_and_evaluate, make_ranker, origin_of, pool_folds
from kinrank.study._folds import COLUMN, Families, Fold, OnLeak, Related, add_families, checked_folds, has_near
from kinrank.study._leaks import LeakReport
from kinrank.study._traffic import SplitInTime
from kinrank.study.comparison import Comparison, Entrant, Fittable, compare
from kinrank.study.peers import PEERS


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
    """Query column whose values are never split, and may vary together in tests. Families that are kept together are
    one: `kinrank.study._folds.COLUMN`.
    """
    leaks: OnLeak = "refuse"
    """What was done with test queries seen in training."""
    n_folds: int = 1
    n_queries: int = 0
    """Number of folds and queries, including those that are left out because enough others are measured."""
    evidence: SplitInTime | None = None
    """What people chose, and the first day of the queries that are measured by traffic; None without."""
    families: float | None = None
    """Similarity of texts above which queries are of one family, and may vary together in tests; None without families.
    """
    by: str = "query"
    """What folds and tests are by, in words, such as "movie and family"."""
    notes: tuple[str, ...] = ()
    """What someone who reads the results should know about the split."""

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
        families: Families = False,
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
        families
            Whether queries with similar texts are never split across folds, and may vary together in tests, like those
            of a group: True, the similarity above which they are (0.6 by default), or None: if there are texts, and
            families enough.
        """
        if test is not None and (test.y is None or test.feature_names != queries.feature_names):
            raise DataError("test queries must be judged and have the training features in the same order")
        n_folds = folds if test is None else 1
        related = add_families([queries] if test is None else [queries, test], families, group, n_folds)
        queries, source = related.parts[0], related.parts[-1]
        notes = [_note(related, "folds and tests" if test is None else "tests")]
        together = group
        if test is None:
            together = group if related.similarity is None else COLUMN
            notes.append(note_on_large_group(queries, together, np.full(folds, 1 / folds)) or "")
        used: list[Fold] = []
        checked = checked_folds(
            queries,
            None if test is None else source,
            folds=folds,
            group=group,
            together=together,
            leaks=leaks,
            seed=seed,
        )
        for fold in checked:
            used.append(fold)
            if enough is not None and sum(len(each.test) for each in used) >= enough:
                break
        positions = np.sort(np.concatenate([fold.positions for fold in used]))
        return cls(
            folds=tuple(used),
            queries=source[positions],
            measures=tuple(measures),
            group=together,
            leaks=leaks,
            n_folds=n_folds,
            n_queries=len(source),
            evidence=evidence,
            families=related.similarity,
            by=_by(group, related.similarity),
            notes=tuple(filter(None, notes)),
        )

    @classmethod
    def of_test(
        cls,
        queries: QuerySet,
        measures: Sequence[Measure] = (NDCG @ 10,),
        *,
        group: str | None = None,
        leaks: OnLeak = "refuse",
        evidence: SplitInTime | None = None,
        families: Families = False,
    ) -> Study:
        """Study models and runs that exist. Queries that a model was trained on are refused."""
        related = add_families([queries], families, group, n_folds=1)
        return cls(
            folds=(),
            queries=related.parts[0],
            measures=tuple(measures),
            group=group,
            leaks=leaks,
            n_queries=len(queries),
            evidence=evidence,
            families=related.similarity,
            by=_by(group, related.similarity),
            notes=tuple(filter(None, [_note(related, "tests")])),
        )

    @property
    def reports(self) -> tuple[LeakReport, ...]:
        """The leaks of each fold."""
        return tuple(fold.leaks for fold in self.folds)

    @property
    def near_duplicates(self) -> NDArray[np.bool_]:
        """Which test queries have a near-duplicate in training, as leaks are found."""
        return self._in_order([fold.near for fold in self.folds])

    @cached_property
    def near(self) -> NDArray[np.bool_] | None:
        """Which test queries have a near training query, by their texts; None without texts or training queries."""
        if not self.folds or any(TEXT not in part.query_columns for part in (self.folds[0].train, self.queries)):
            return None
        return self._in_order([has_near(fold.test, fold.train, self.families or FAMILY) for fold in self.folds])

    def _in_order(self, by_fold: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return values of the test queries, given fold by fold, in the order of `queries`."""
        return np.concatenate(by_fold)[np.argsort(np.concatenate([fold.positions for fold in self.folds]))]

    @property
    def groups(self) -> NDArray[np.generic] | None:
        """The group or family of each test query; None if queries vary independently."""
        column = self.group if self.families is None else COLUMN
        return None if column is None else groups_of(self.queries, column)

    def enter(self, text: str, progress: Parts | None = None) -> Entrant:
        """Measure the ranker, model folder or run that a text names; see `kinrank.study._entrants.origin_of`."""
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

    def enter_engine(self, feature: str) -> Entrant:
        """Measure the order of the engine, by a feature or by its logged rank."""
        peer = PEERS["feature"](feature).fit(self.queries)
        return replace(evaluate_ranker(RUNGS["engine"], peer, self.queries, self.measures), origin="peer")

    def _check(self, name: str, model: Fittable, queries: QuerySet) -> None:
        """Raise if a model was trained on test queries."""
        seen = model.learned_from(queries)
        if seen is not None and seen.any() and self.leaks != "warn":
            raise LeakError(
                f"{name}: {seen.sum():,} of {len(seen):,} test queries are in this model's training data, "
                f"for example {queries.qid[seen][0].item()!r}: test on other queries, or leave them out with "
                "leaks='drop' (--leaks drop on the command line)"
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
        recurrence = self._in_order(by_fold) if self.folds else by_fold[0]
        sides = rungs[CHOICES], rungs[subject]
        return self.evidence.answer(
            self.queries,
            recurrence,
            (sides[0].name, sides[1].name),
            (sides[0].per_query(self.measures[0]), sides[1].per_query(self.measures[0])),
            self.groups,
            min_gain,
            rungs["engine"].per_query(self.measures[0]) if "engine" in rungs else None,
        )

    def compare(self, entrants: Sequence[Entrant], baseline: str | None = None) -> Comparison:
        """Compare entrants on all test queries; see `kinrank.study.comparison.compare`."""
        compared = compare(self.queries, entrants, baseline=baseline, groups=self.groups)
        tested = [(each.name, each.against) for each in compared.differences if each.measure == self.measures[0]]
        by_name = {entrant.name: entrant for entrant in entrants}
        return replace(compared, near_and_far=self._near_and_far(by_name, tested))

    def _near_and_far(
        self, entrants: Mapping[str, Entrant], pairs: Iterable[tuple[str, str]]
    ) -> tuple[NearAndFar, ...]:
        """Return the differences of pairs, by name, in which an entrant remembers judgments."""
        near = self.near
        if near is None:
            return ()
        remembering = [pair for pair in pairs if any(entrants[name].remembers for name in pair)]
        return tuple(
            NearAndFar(
                *pair,
                similarity=self.families or FAMILY,
                n_near=int(near.sum()),
                n_far=int((~near).sum()),
                near=self.difference_on(near, entrants[pair[0]], entrants[pair[1]]),
                far=self.difference_on(~near, entrants[pair[0]], entrants[pair[1]]),
            )
            for pair in remembering
        )

    def difference_on(self, chosen: NDArray[np.bool_], one: Entrant, other: Entrant) -> PairedComparison | None:
        """Compare two entrants on some test queries, in the first measure; None with too few queries or groups."""
        values = [each.per_query(self.measures[0])[chosen] for each in (one, other)]
        groups = None if self.groups is None else self.groups[chosen]
        measured = np.flatnonzero(~np.isnan(values[0]))
        if len(measured if groups is None else np.unique(groups[measured])) < 2:
            return None
        return compare_paired(values[0], values[1], groups=groups)

    def answer(self, rungs: Mapping[str, Entrant], *, min_gain: float = MIN_GAIN, note: str = "") -> Answer | None:
        """Return what the rungs of the ladder say in the first measure, under the names of their entrants."""
        values = {rung: entrant.per_query(self.measures[0]) for rung, entrant in rungs.items()}
        names = {rung: entrant.name for rung, entrant in rungs.items()}
        choices = self._traffic(rungs, min_gain)
        found = answer(values, names, groups=self.groups, min_gain=min_gain, note=note, choices=choices)
        if found is None:
            return None
        claims = [(each.name, each.against) for each in found.claims]
        by_name = {entrant.name: entrant for entrant in rungs.values()}
        return replace(found, near_and_far=self._near_and_far(by_name, claims))


def _note(related: Related, what: str) -> str:
    """Return what families are used for, with their number."""
    return related.note if related.similarity is None else f"{related.note}: {what} are by family"


def _by(group: str | None, families: float | None) -> str:
    """Return what folds and tests are by, in words."""
    return " and ".join(filter(None, [group, None if families is None else "family"])) or "query"
