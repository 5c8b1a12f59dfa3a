"""The parts of memory that a `KinRanker` uses: each must earn its place on held-out queries.

Trees learn from the features, then also from what everyone chose, from what kin chose, from keys, and from what kin by
meaning chose. Each part is kept if it helps queries that are split off at random, or by family with all their
near-duplicates, and harms neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, Float64, GrowingRows, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.split import connected, fold_of_query, groups_of, linked
from kinrank.data.texts import TEXT
from kinrank.errors import DataError
from kinrank.kin.families import IN_MEANING
from kinrank.kin.letters import FAMILY
from kinrank.measure import compare_paired
from kinrank.memory.answers import Round
from kinrank.memory.columns import MEANING, N_FOLDS, PARTS, QueryMemory, column_names
from kinrank.progress import report_progress
from kinrank.rankers._local.choose import MEASURE
from kinrank.rankers.kin._blend import best_shares
from kinrank.rankers.kin._trees import BagTraining, few_trees
from kinrank.store import nest, unnest

_SPLITS = 4  # parts of the queries, which are held out one after the other
_ENOUGH = 2_000  # held-out queries that decide well enough
_FEWEST = 400  # held-out queries that may show that a part is likely better
_CLEAR = 1e-3  # p below which fewer do
_PERIODS = 20  # of time: the queries of each learn from those of the periods before
_MOST_ROWS = 100_000  # of queries that trees learn from to decide
_NEW = 0.1  # share of the training queries that are learned as if they were about something new
WEIGHTS = "weights per query"
"""The part that trees learn from the query's own linear model."""
_LIKELY = 0.05  # p below which the better of two sides is taken
_CHANCE = 0.3  # p above which a gain is taken as chance, and a loss, too


class _Rung(NamedTuple):
    """A step of the ladder: a part, and the parts of memory that trees see with it."""

    part: str
    documents: tuple[str, ...] = ()
    keys: bool = False
    meaning: bool = False

    def columns(self, memory: QueryMemory) -> Int64:
        """Return the positions of its columns among those of memory."""
        wanted = {name for part in self.documents for name in PARTS[part]}
        of_documents, by_letters = len(column_names()), len(column_names(memory.keys))
        by_meaning = by_letters + len(MEANING) + 1
        seen = [
            self.meaning and (i < by_meaning or self.keys)
            if i >= by_letters
            else self.keys
            if i >= of_documents
            else name in wanted
            for i, name in enumerate(memory.names)
        ]
        return np.flatnonzero(seen)


def _rungs(memory: QueryMemory) -> list[_Rung]:
    """Return the steps that memory can have. Kin by meaning come with keys and without: one of both is compared."""
    rungs = [_Rung("features"), _Rung("everyone", ("everyone",)), _Rung("kin", tuple(PARTS))]
    if memory.keys:
        rungs.append(_Rung("keys", tuple(PARTS), keys=True))
    if memory.vectors is not None:
        rungs += [_Rung("kin by meaning", tuple(PARTS), rung.keys, meaning=True) for rung in rungs[2:]]
    return rungs


@dataclass(frozen=True)
class PartRecord:
    """Whether a part is used, and why."""

    part: str
    kept: bool
    gain: float
    """By how much it raised NDCG@10 on held-out queries: the lower of both splits."""
    near: float | None = None
    far: float | None = None
    """The same for queries, split off at random, with and without a known query that is nearly the same."""
    milliseconds: float | None = None
    """What it adds to the time of ranking one query."""

    def __str__(self) -> str:
        split = {"far": self.far, "near": self.near}
        gains = [f"{_short(value)} on {name} queries" for name, value in split.items() if value is not None]
        cost = "" if self.milliseconds is None else f", {self.milliseconds:.2g} ms".replace(" 0.", " .")
        gained = " and ".join(gains) or f"{_short(self.gain)} on held-out queries"
        return f"{self.part}: {'kept' if self.kept else 'left out'}, {gained}{cost if self.kept else ''}"


def _short(gain: float) -> str:
    """Return a gain in three decimals.

    Examples
    --------
    >>> _short(-0.0123)
    '-.012'
    """
    return f"{gain:+.3f}".replace("0.", ".", 1)


@dataclass(frozen=True, eq=False)
class MemoryPart:
    """Memory, and which of its columns trees see."""

    memory: QueryMemory
    seen: Int64
    """Positions of the columns."""
    qid: GrowingRows
    """The ids of the known queries, by their positions in memory, with those of queries that were removed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(np.array(self.memory.names)[self.seen].tolist())

    def columns(self, queries: QuerySet) -> Float32:
        """Return the columns of the candidates of queries."""
        return self.memory.columns(queries)[:, self.seen]

    def nothing(self, n_rows: int) -> Float32:
        """Return the columns of candidates that nobody has judged."""
        return np.zeros((n_rows, len(self.seen)), dtype=np.float32)

    @classmethod
    def of(cls, memory: QueryMemory, seen: Int64, qid: NDArray[Any]) -> MemoryPart:
        """Use some columns of a memory, given the ids of its queries."""
        return cls(memory, seen, GrowingRows(qid.astype(np.str_)))

    def over(self, queries: QuerySet) -> MemoryPart:
        """Return the same columns of a memory of other queries, more than those that decided about its parts."""
        memory = QueryMemory.of(queries, self.memory.keys, meaning=self.memory.vectors is not None)
        return self.of(memory, self.seen, queries.qid)

    def of_training(
        self,
        queries: QuerySet,
        group_column: str | None,
        time_column: str | None,
        seed: int,
        wanted: NDArray[np.bool_] | None = None,
    ) -> Float32:
        """Return the columns of the known queries, or of some, each from other folds, or from earlier ones."""
        return columns_of_training(self.memory, queries, group_column, time_column, seed, wanted)[:, self.seen]

    def added(self, queries: QuerySet) -> MemoryPart:
        """Return the same with further judged queries."""
        joined = self.memory.joined(self.memory.of_others(queries))
        return replace(self, memory=joined, qid=self.qid.append(queries.qid.astype(np.str_)))

    def without(self, qid: ArrayLike) -> MemoryPart:
        """Return the same without some of the known queries, by their ids."""
        gone = np.isin(self.qid.rows, np.asarray(qid).astype(np.str_))
        there = self.memory.index.allowed()
        places = np.flatnonzero(gone if there is None else gone & there)
        return replace(self, memory=self.memory.without(places)) if len(places) else self

    def prepared(self) -> MemoryPart:
        """Return the same with memory for further queries."""
        return replace(self, memory=self.memory.prepared())

    def get_state(self) -> State:
        """Return everything remembered."""
        kept = self.memory.index.allowed()
        qid = self.qid.rows if kept is None else self.qid.rows[kept]
        return nest(memory=self.memory.get_state()) | {"seen": self.seen, "qid": qid}

    @classmethod
    def from_state(cls, state: State) -> MemoryPart | None:
        """Restore what `get_state` returned; None if that is nothing."""
        if not state:
            return None
        memory = QueryMemory.from_state(unnest(state, "memory"))
        return cls(memory, np.asarray(state["seen"]), GrowingRows(state["qid"]))


def can_remember(queries: QuerySet) -> bool:
    """Return whether queries have what memory needs: texts, and ids of documents."""
    return queries.doc_id is not None and TEXT in queries.query_columns


class Facts(NamedTuple):
    """What decides about the folds of known queries in which the columns of each are made."""

    n_queries: int
    relevant: tuple[Int64, NDArray[Any]]
    """Pairs of a query and a relevant document."""
    group: NDArray[Any] | None = None
    time: NDArray[Any] | None = None
    """The group, and the time, of each query; None without."""

    @classmethod
    def of(cls, queries: QuerySet, group_column: str | None, time_column: str | None) -> Facts:
        """Take them from queries."""
        assert queries.doc_id is not None  # memory needs ids
        rows = np.flatnonzero(queries.grades > 0)
        group = None if group_column is None else groups_of(queries, group_column)
        time = None if time_column is None else groups_of(queries, time_column)
        return cls(len(queries), (queries.query_of_row[rows], queries.doc_id[rows]), group, time)

    def folds(self, seed: int) -> Int64:
        """Return the fold of each query, or its period; groups stay together."""
        if self.time is not None:
            return periods_of(self.time)
        together = np.arange(self.n_queries) if self.group is None else self.group
        groups, number = np.unique(together, return_inverse=True)
        folds: Int64 = (np.random.default_rng(seed).permutation(len(groups)) % N_FOLDS)[number]
        return folds

    def rounds(self, seed: int, wanted: NDArray[np.bool_] | None = None) -> list[Round]:
        """Return the rounds that make the columns of the wanted queries, each from other folds, or from earlier ones.

        Without groups and times, a tenth of the queries have columns without any query that shares a relevant document
        with them, directly or through others. So trees also learn what memory is worth if a query is about something
        new: else whatever was right before would outrank what nobody has judged yet.
        """
        asked = np.ones(self.n_queries, dtype=np.bool_) if wanted is None else wanted
        folds = self.folds(seed)
        if self.group is not None or self.time is not None:
            return [Round(folds, asked, self.time is not None)] if asked.any() else []
        rng = np.random.default_rng(seed)
        # Queries that share a relevant document are about the same thing.
        thing = linked(*self.relevant, self.n_queries)
        new = rng.random(self.n_queries) < _NEW
        fold_of_thing = rng.permutation(thing.max(initial=0) + 1) % N_FOLDS
        rounds = Round(folds, asked & ~new), Round(fold_of_thing[thing], asked & new)
        return [order for order in rounds if order.asked.any()]


def memory_folds(queries: QuerySet, group_column: str | None, time_column: str | None, seed: int) -> Int64:
    """Return the fold of each query in which its columns are made, or its period; groups stay together."""
    return Facts.of(queries, group_column, time_column).folds(seed)


def periods_of(time: NDArray[Any]) -> Int64:
    """Return the number of the period of each query, earlier ones first, of at most 20 with as many queries each.

    Queries of one time are in one period.

    Examples
    --------
    >>> periods_of(np.array([7, 3, 3, 9, 3, 3])).tolist()
    [1, 0, 0, 2, 0, 0]
    """
    order, counts = np.unique(time, return_inverse=True, return_counts=True)[1:]
    period = (np.cumsum(counts) - counts) * _PERIODS // len(time)
    numbers: Int64 = np.unique(period, return_inverse=True)[1][order].astype(np.int64)
    return numbers


def columns_of_training(
    memory: QueryMemory,
    queries: QuerySet,
    group_column: str | None,
    time_column: str | None,
    seed: int,
    wanted: NDArray[np.bool_] | None = None,
) -> Float32:
    """Return the columns of the wanted ones of the known queries, each from other folds, or from earlier ones."""
    kept = np.ones(len(queries), dtype=np.bool_) if wanted is None else wanted
    sizes = queries.sizes[kept]
    columns = np.empty((int(sizes.sum()), len(memory.names)), dtype=np.float32)
    for order in Facts.of(queries, group_column, time_column).rounds(seed, kept):
        made = memory.cross_fitted(order.part, queries, in_time=order.in_time, wanted=order.asked)
        columns[np.repeat(order.asked[kept], sizes)] = made
    return columns


def choose_memory(
    queries: QuerySet,
    keys: Sequence[str],
    group_column: str | None,
    time_column: str | None,
    seed: int,
    *,
    meaning: bool = False,
) -> tuple[MemoryPart | None, list[PartRecord]]:
    """Return memory with the parts that pay, and what was found about each; None if none does.

    `meaning` tells whether vectors of queries say more than their letters do.
    """
    if not can_remember(queries):
        return None, []
    memory = QueryMemory.of(queries, keys, meaning=meaning)
    rungs = _rungs(memory)
    trials = list(_trials(queries, memory, rungs, group_column, time_column, seed))
    if not trials:
        return None, []
    kept, records = rungs[0], []
    for step in _steps(rungs, trials):
        rung = rungs[step.rung]
        near, far = (trials[0].mean_gain(step.rung, step.before, own) for own in (trials[0].near, ~trials[0].near))
        cost = sum(trial.seconds for trial in trials) / sum(trial.n_timed for trial in trials) * 1e3
        share = len(rung.columns(memory)) / len(memory.names)
        gain = min(gain for gain, _ in step.tested)
        records.append(PartRecord(rung.part, step.pays, gain, near, far, cost * share))
        kept = rung if step.pays else kept
    if kept is rungs[0]:
        return None, records
    if not kept.meaning:
        memory = QueryMemory.of(queries, keys)
    return MemoryPart.of(memory, kept.columns(memory), queries.qid), records


@dataclass(frozen=True, eq=False)
class _Trial:
    """The quality of each rung on queries that were held out in one way."""

    quality: Float64
    """NDCG@10 of each held-out query by rung; shape (rungs, queries)."""
    family: NDArray[Any]
    """The families of these queries, which vary independently."""
    near: NDArray[np.bool_]
    """Whether a known query is nearly the same."""
    seconds: float
    n_timed: int
    """What it took to look the queries up, and how many there were."""

    @classmethod
    def joined(cls, parts: Sequence[_Trial]) -> _Trial:
        """Return the trials of several sets of queries as one."""
        quality, family, near, seconds, n_timed = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(np.hstack(quality), np.concatenate(family), np.concatenate(near), sum(seconds), sum(n_timed))

    @property
    def is_enough(self) -> bool:
        """Whether enough queries were held out, or the last rung differs clearly from the first and the one before."""
        last = len(self.quality) - 1
        clear = [self.compare(last, other)[1] < _CLEAR for other in (0, last - 1)]
        return len(self.family) >= _ENOUGH or all(clear)

    def compare(self, rung: int, before: int) -> tuple[float, float]:
        """Return the gain over another rung, and its p by family."""
        groups = self.family if len(np.unique(self.family)) > 1 else None
        found = compare_paired(self.quality[rung], self.quality[before], groups=groups)
        return found.mean_difference, found.p

    def mean_gain(self, rung: int, before: int, wanted: NDArray[np.bool_]) -> float | None:
        """Return the gain over another rung for some of the queries; None if there are none."""
        gain = (self.quality[rung] - self.quality[before])[wanted]
        return float(np.nanmean(gain)) if np.isfinite(gain).any() else None


class _Step(NamedTuple):
    """A rung, the one that was kept before it, and the gain over that with its p in each trial."""

    rung: int
    before: int
    tested: list[tuple[float, float]]

    @property
    def pays(self) -> bool:
        """Whether the rung is better in one trial at least, and worse in none."""
        tested = self.tested
        return all(gain > 0 or p > _CHANCE for gain, p in tested) and any(
            gain > 0 and p < _CHANCE for gain, p in tested
        )


def _steps(rungs: Sequence[_Rung], trials: Sequence[_Trial]) -> list[_Step]:
    """Return what the trials say about each rung."""
    steps, kept = [], 0
    for number, rung in enumerate(rungs[1:], 1):
        if not rung.meaning or rung.keys == rungs[kept].keys:
            steps.append(_Step(number, kept, [trial.compare(number, kept) for trial in trials]))
            kept = number if steps[-1].pays else kept
    return steps


def _are_likely(rungs: Sequence[_Rung], parts: Sequence[_Trial], n_parts: int) -> bool:
    """Return whether half of the held-out parts, or more, show each rung likely better, or not better at all."""
    if 2 * len(parts) < n_parts or sum(len(part.family) for part in parts) < _FEWEST:
        return False
    tested = [each for step in _steps(rungs, [_Trial.joined(parts)]) for each in step.tested]
    return all(gain <= 0 or p < _LIKELY for gain, p in tested)


def _trials(
    queries: QuerySet,
    memory: QueryMemory,
    rungs: Sequence[_Rung],
    group_column: str | None,
    time_column: str | None,
    seed: int,
) -> Iterator[_Trial]:
    """Yield trials with queries held out at random, and by family; or the last quarter in time, in whole periods."""
    family = memory.families()
    if group_column is not None:
        family = connected(family, groups_of(queries, group_column))
    if time_column is not None:
        period = periods_of(groups_of(queries, time_column))
        later = np.cumsum(np.bincount(period)[::-1])[::-1]  # queries of each period and those after it
        border = min(int(np.sum(later * _SPLITS > len(queries))), int(period.max()))
        folds = [(period >= border).astype(np.int64)]
        used = [1]
    else:
        by_group = np.arange(len(queries)) if group_column is None else groups_of(queries, group_column)
        used, folds = list(range(_SPLITS)), []
        for together in (by_group, family):
            with suppress(DataError):  # too few groups, or families
                folds.append(fold_of_query(queries, _SPLITS, group=together, seed=seed))
    for number, fold in enumerate(folds):
        parts = []
        for held_out in used:
            part = _try(queries, memory, rungs, fold == held_out, family, (group_column, time_column, seed))
            if part is not None:
                parts.append(part)
            report_progress("parts of memory", number * len(used) + held_out + 1, len(folds) * len(used))
            if parts and (_Trial.joined(parts).is_enough or _are_likely(rungs, parts, len(used))):
                break
        if parts:
            yield _Trial.joined(parts)


def _try(
    queries: QuerySet,
    memory: QueryMemory,
    rungs: Sequence[_Rung],
    out: NDArray[np.bool_],
    family: NDArray[Any],
    made: tuple[str | None, str | None, int],
) -> _Trial | None:
    """Learn from the other queries with each rung, and measure on the held-out ones."""
    rng = np.random.default_rng(made[2])
    asked = np.sort(rng.permutation(np.flatnonzero(out))[:_ENOUGH])
    others = np.flatnonzero(~out)
    shuffled = rng.permutation(len(others))
    learned = np.zeros(len(others), dtype=np.bool_)
    learned[shuffled[np.cumsum(queries.sizes[others][shuffled]) <= _MOST_ROWS]] = True
    if len(asked) < 2 or not len(others):  # nothing can be compared
        return None
    test, rest = queries[asked], queries[others]
    known = memory.take(others)
    seen = columns_of_training(known, rest, *made, wanted=learned)
    start = perf_counter()
    later = known.columns(test)
    seconds = perf_counter() - start
    near = _are_near(known, test)
    train = rest if learned.all() else rest[learned]
    try:
        quality = [
            _quality(train, test, seen[:, own], later[:, own]) for own in [rung.columns(memory) for rung in rungs]
        ]
    except DataError:  # no query has different grades
        return None
    return _Trial(np.array(quality), family[asked], near, seconds, len(test))


def _are_near(known: QueryMemory, queries: QuerySet) -> NDArray[np.bool_]:
    """Return which queries have a known near-duplicate, by letters or meaning."""
    asked = known.asked(queries)
    near: NDArray[np.bool_] = np.isin(asked.key, known.key) | (known.nearest(asked)[1][:, 0] > FAMILY)
    return near | (known.nearest_in_meaning(asked)[1] > IN_MEANING).any(axis=1)


def _quality(train: QuerySet, test: QuerySet, seen: Float32, later: Float32) -> Float64:
    """Return the quality of trees on test queries, with further columns of both."""
    table = train.replace(X=np.hstack([train.X, seen]), feature_names=())
    scores = few_trees(train.n_rows).fit(table).predict(np.hstack([test.X, later]))
    return MEASURE.per_query(scores, test.grades, test.offsets, sample_weight=test.sample_weight)


def weights_that_pay(training: BagTraining, judged: QuerySet) -> tuple[BagTraining, PartRecord]:
    """Return the training of trees that see the score of the query's own model, or of trees that do not.

    A few trees of both leave out fold after fold, until enough queries were held out, one side is likely better, or
    half of the folds show that neither is. Each side is blended as it would rank. Weights stay unless they lose: with
    few queries no test could tell.
    """
    for block in range(len(training.folds[0])):
        training.make_table((0, block))
    sides = training, training.without_weights(judged.n_features)
    blended = [0, 1, 2], [0, 2]  # trees, local and global model
    queries: list[QuerySet] = []
    scores: list[list[Float64]] = [[], []]
    for number in range(training.n_members):
        held_out = [side.held_out_scores(number) for side in sides]
        queries.append(held_out[1][0])
        for of_folds, parts, (_, found_scores) in zip(scores, blended, held_out, strict=True):
            of_folds.append(found_scores[:, parts])
        report_progress(WEIGHTS, number + 1, training.n_members)
        out = QuerySet.concat(queries)
        with_weights, without = (_blended_quality(np.concatenate(of_folds), out) for of_folds in scores)
        found = compare_paired(with_weights, without)
        alike = found.p > _CHANCE and 2 * (number + 1) >= training.n_members
        if found.n >= _ENOUGH or found.p < _LIKELY or alike:
            break
    kept = found.mean_difference >= 0
    return sides[0 if kept else 1], PartRecord(WEIGHTS, kept, found.mean_difference)


def _blended_quality(scores: Float64, queries: QuerySet) -> Float64:
    """Return the quality of queries by the best blend of some scores."""
    order = scores @ best_shares(scores, queries)[0]
    return MEASURE.per_query(order, queries.grades, queries.offsets, sample_weight=queries.sample_weight)
