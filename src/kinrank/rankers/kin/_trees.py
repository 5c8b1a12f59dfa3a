"""The trees of a `KinRanker`: what they see of each judged query, a bag of them, and its out-of-fold scores.

The judged queries come in numbered blocks. What was computed of a block, or of the bag, is kept in a `Store`: in
memory, or in a folder that several workers share, so that an interrupted job resumes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.blocks import Sample, Store
from kinrank.data.hashes import hash_ids
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DamagedFolderError, DataError
from kinrank.kin.blocks import relative_features, standardize
from kinrank.learn.lambdamart import LambdaMART
from kinrank.parallel import Executor, TaskCost, start_measuring
from kinrank.rankers._local.nearest import NeighborRanker
from kinrank.rankers._local.neighbor_model import LocalPrediction
from kinrank.rankers.cells._training import CellPlan

# --- the judged queries that trees learn from: all of them, or a sample that keeps groups whole -----------------------


class JudgedBlocks(ABC):
    """Judged queries in blocks, none of which is empty."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    @abstractmethod
    def __call__(self, block: int) -> QuerySet:
        """Return a block."""

    def split(self, values: Int64) -> list[Int64]:
        """Split one value per query by block."""
        return np.split(values, np.cumsum(self.sizes)[:-1])

    def take(self, places: Int64) -> QuerySet:
        """Return the queries at some ascending places."""
        starts = np.cumsum([0, *self.sizes])
        bounds = np.searchsorted(places, starts)
        parts = [
            self(block)[places[bounds[block] : bounds[block + 1]] - starts[block]]
            for block in range(len(self))
            if bounds[block + 1] > bounds[block]
        ]
        return parts[0] if len(parts) == 1 else QuerySet.concat(parts)


class QueriesInMemory(JudgedBlocks):
    """Blocks in memory."""

    def __init__(self, *parts: QuerySet) -> None:
        super().__init__([len(part) for part in parts])
        self.parts = parts

    def __call__(self, block: int) -> QuerySet:
        """Return a block."""
        return self.parts[block]


class MemoryColumns(Protocol):
    """The columns of memory of judged queries, block by block."""

    @property
    def n_columns(self) -> int:
        """The number of columns."""

    def __call__(self, block: int) -> Float32:
        """Return the columns of the candidates of a block."""


@dataclass(frozen=True)
class TreeSample:
    """Chooses about a share of the queries: evenly spaced, or whole groups.

    A group is in the sample entirely or not at all, so that a query's local model can be learned without its group.
    """

    share: float
    """The share of the queries; 1.0 for all."""
    group_column: str | None
    """The query column with the group."""
    time_column: str | None = None
    """The query column with the time."""

    def of(self, queries: QuerySet) -> QuerySet:
        """Return the sampled queries, without query columns that are not needed.

        Examples
        --------
        >>> columns = {"movie": ["a", "b", "c", "a"], "text": ["w", "x", "y", "z"]}
        >>> queries = QuerySet.from_arrays(np.zeros((4, 1)), [0, 1, 0, 1], group=[1] * 4, query_columns=columns)
        >>> TreeSample(0.5, None).of(queries).qid.tolist()
        [0, 3]
        >>> TreeSample(0.3, "movie").of(queries).query_columns["movie"].tolist()
        ['a', 'c', 'a']
        """
        chosen = self.chosen(queries)
        queries = queries if chosen.all() else queries[chosen]
        names = TEXT, VECTORS, self.group_column, self.time_column
        kept = {name: each for name, each in queries.query_columns.items() if name in names}
        return queries.replace(query_columns=kept)

    def chosen(self, queries: QuerySet) -> NDArray[np.bool_]:
        """Return which queries are in the sample."""
        if self.group_column is None or self.share == 1.0:
            return Sample((), self.share).chosen(len(queries))
        hashes: NDArray[np.uint64] = hash_ids(queries.query_columns[self.group_column])
        return hashes < np.uint64(self.share * 2.0**64)


def only_judgments(kept: JudgedBlocks, group_column: str | None) -> QuerySet:
    """Return all queries with their grades, weights and groups, but without features."""
    if not len(kept):
        raise DataError("no query is in the sample that trees learn from: set tree_queries higher")
    parts = []
    for block in range(len(kept)):
        queries = kept(block)
        columns = {} if group_column is None else {group_column: queries.query_columns[group_column]}
        nothing = np.zeros((queries.n_rows, 1), dtype=np.float32)
        parts.append(queries.replace(X=nothing, feature_names=(), query_columns=columns, doc_id=None, doc_columns={}))
    return QuerySet.concat(parts)


def sums_of_folds(plan: CellPlan, kept: JudgedBlocks, folds: list[Int64]) -> list[list[State]]:
    """Return the packed cells of each fold, for each repeat of the cross-fitting."""
    sums = [[plan.no_sums() for _ in range(int(fold.max()) + 1)] for fold in folds]
    split = [kept.split(fold) for fold in folds]
    for block in range(len(kept)):
        queries = kept(block)
        for of_repeat, by_block in zip(sums, split, strict=True):
            for held_out, cells in enumerate(of_repeat):
                plan.add_to(cells, queries[by_block[block] == held_out])
    return [[cells.pack() for cells in of_repeat] for of_repeat in sums]


def spread_over(count: int, wanted: int) -> Int64:
    """Return evenly spaced positions.

    Examples
    --------
    >>> spread_over(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.linspace(0, count - 1, min(count, wanted)).astype(np.int64)


def weights_differ(queries: QuerySet) -> bool:
    """Return whether the weights of relevant documents differ within most queries, as those from clicks do.

    Such weights tell how often a document was shown, and so does its standing by the engine's score. Documents that
    nobody has seen have grade 0, so the weight that they are given does not matter here.

    Examples
    --------
    >>> shown = QuerySet.from_arrays(np.zeros((3, 1)), [1, 2, 0], group=[3], sample_weight=[0.9, 0.1, 0.1])
    >>> human = QuerySet.from_arrays(np.zeros((3, 1)), [1, 2, 0], group=[3], sample_weight=[1.0, 1.0, 0.1])
    >>> weights_differ(shown), weights_differ(human)
    (True, False)
    """
    if queries.sample_weight is None:
        return False
    relevant = (queries.grades > 0) & (queries.sample_weight > 0)
    weight, owner = queries.sample_weight[relevant], queries.query_of_row[relevant]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    if not len(starts):
        return False
    several = np.diff(starts, append=len(owner)) > 1
    differs = np.maximum.reduceat(weight, starts) > np.minimum.reduceat(weight, starts)
    return bool(2 * np.count_nonzero(differs) > np.count_nonzero(several))


# --- what trees see, and the bag --------------------------------------------------------------------------------------


_SMOOTH = 11

Without = Callable[[int, int], NeighborRanker]
"""Returns the local ranker that has not seen a fold of a repeat of the cross-fitting: ``without(repeat, fold)``."""

Progress = Callable[[str, int, int, TaskCost], None]
"""Called after each task with its kind, how many of the kind are finished, how many there are, and its cost."""


class TreeView(NamedTuple):
    """What trees see of a candidate: its features, then what these settings add."""

    standing: bool = True
    """Whether they see where each value stands among the query's candidates."""
    local: bool = True
    """Whether they see the score of the query's own model."""
    n_memory: int = 0
    """The number of columns of memory."""

    def table(self, queries: QuerySet, local: Float64 | None, memory: Float32 | None) -> Float32:
        """Return a row for each candidate.

        Examples
        --------
        >>> queries = QuerySet.from_arrays([[1.0], [3.0]], group=[2])
        >>> TreeView(local=False).table(queries, None, None).tolist()
        [[1.0, -1.0, 1.0], [3.0, 1.0, 0.0]]
        """
        columns = [queries.X]
        if self.local and local is not None:
            columns.append(local.astype(np.float32)[:, None])
        if self.standing:
            columns = [part for each in columns for part in (each, relative_features(each, queries.offsets))]
        return np.hstack(columns if memory is None else [*columns, memory])

    def ends(self, n_features: int) -> tuple[int, int]:
        """Return where the features with their standing end among the columns, and where the local score does."""
        width = 3 if self.standing else 1
        return width * n_features, width * (n_features + self.local)

    @classmethod
    def of_columns(cls, n_features: int, n_columns: int) -> TreeView:
        """Return the view of trees from a file, or of a model that was saved before there was memory."""
        standing = n_columns >= 3 * n_features
        return cls(standing, n_columns > (3 if standing else 1) * n_features)


@dataclass(frozen=True, eq=False)
class _Bag:
    """Trained members, and what is needed to decide how to use them."""

    members: list[LambdaMART]
    """One model per repeat and fold, trained without the fold; one in all if the trees are given."""
    n_trees: int
    """The number of trees of a member that ranks best alone."""
    n_grown: int
    """The number of trees that each member has."""
    parts: Float64
    """Standardized out-of-fold scores of trees, local and global model, averaged over the repeats; shape (rows, 3)."""


@dataclass(frozen=True, eq=False)
class BagTraining:
    """Trains a bag on blocks of judged queries."""

    rows: Callable[[int], QuerySet]
    """Returns a block of judged queries."""
    folds: list[list[Int64]]
    """The fold of each query of each block, for each repeat: ``folds[repeat][block]``."""
    without: Without
    """Returns the local ranker that has not seen a fold."""
    view: TreeView
    """What tables have for the trees."""
    settings: LambdaMART
    """Settings of the members; their seeds follow one another."""
    n_members: int
    """Number of folds, and of members per repeat."""
    store: Store
    """Where tables and members are kept."""
    memory: MemoryColumns | None = None
    """The columns of memory of each block, each query's from others; None without memory."""
    seen: Int64 | None = None
    """The columns of the tables that trees see; None: all."""

    def without_weights(self, n_features: int) -> BagTraining:
        """Return the same for trees that see the features and memory alone, from the same tables."""
        end = self.view.ends(n_features)[1]
        seen = np.r_[np.arange(n_features), np.arange(end, end + self.view.n_memory)]
        return replace(self, seen=seen)

    @property
    def tree_view(self) -> TreeView:
        """What trees see; tables may have more."""
        return self.view if self.seen is None else TreeView(False, False, self.view.n_memory)

    def held_out_scores(self, held_out: int) -> tuple[QuerySet, Float64]:
        """Return the queries of a fold, in the first repeat, and their standardized scores by models without the fold.

        They are those of a few trees, of the local and of the global model; shape (rows, 3).
        """
        seen, out = self.split(0, held_out, range(len(self.folds[0])))
        linear = []
        for block, fold in enumerate(self.folds[0]):
            state = self._table(0, block)
            linear.append(state["linear"][rows_of(QuerySet.from_state(state, ()), fold == held_out)])
        scores = few_trees(seen.n_rows).fit(seen).predict(out.X)
        return out, standardize(np.column_stack([scores, np.concatenate(linear)]), out.offsets)

    @property
    def tables(self) -> list[tuple[int, int]]:
        """The repeat and the block of each table."""
        return [(repeat, block) for repeat, folds in enumerate(self.folds) for block in range(len(folds))]

    @property
    def members(self) -> list[tuple[int, int]]:
        """The repeat and the left-out fold of each member."""
        return [(repeat, held_out) for repeat in range(len(self.folds)) for held_out in range(self.n_members)]

    def run(self, executor: Executor, progress: Progress) -> _Bag:
        """Compute what is not in the store yet, and return the bag; tasks are one per table, then one per member."""
        self._complete("tables", self.make_table, self.tables, executor, progress)
        if self.settings.learns:
            members, best, n_grown = self._grow(executor, progress)
        else:
            given = _copy_with_seed(self.settings, self.settings.seed).fit(self.rows(0))
            members, best, n_grown = [given], given.n_trees_, given.n_trees_
        repeats, blocks = range(len(self.folds)), range(len(self.folds[0]))
        parts = [sum(self._scores(members, repeat, block) for repeat in repeats) for block in blocks]
        return _Bag(members, best, n_grown, np.concatenate(parts))

    def _grow(self, executor: Executor, progress: Progress) -> tuple[list[LambdaMART], int, int]:
        """Train all members, and return them with the number of trees that is best for one, and that all have.

        The first repeat has held out every query once, so its members tell when the common curve peaks. Those of later
        repeats grow as many trees as a bag with that peak ranks with.
        """
        trained: list[tuple[LambdaMART, Float64]] = []
        sizes = [np.count_nonzero(np.concatenate(self.folds[repeat]) == out) for repeat, out in self.members]
        bag = self
        for end in sorted({self.n_members, len(self.members)}):
            self._complete("trees", bag.make_member, self.members, executor, progress, end)
            trained += [bag._member(*item) for item in self.members[len(trained) : end]]
            n_grown = min(len(curve) for _, curve in trained)
            best = best_number_of_trees([curve[:n_grown] for _, curve in trained], np.array(sizes[:end]))
            fewer: LambdaMART = clone(self.settings).set_params(n_trees=n_trees_of_bag(best, n_grown))
            bag = replace(self, settings=fewer)
        return [model.keep_trees(best) for model, _ in trained], best, n_grown

    def _complete(
        self,
        kind: str,
        make: Callable[[tuple[int, int]], TaskCost],
        items: list[tuple[int, int]],
        executor: Executor,
        progress: Progress,
        end: int | None = None,
    ) -> None:
        """Run the tasks of a kind, or those before `end`, whose results are not in the store yet."""
        existing = self.store.names()
        missing = [item for item in items if _name(kind, *item) not in existing]
        finished = executor.map_unordered(make, [item for item in items[:end] if item in missing])
        for done, (_, cost) in enumerate(finished, len(items) - len(missing) + 1):
            progress(kind, done, len(items), cost)

    def make_table(self, item: tuple[int, int]) -> TaskCost:
        """Compute what trees see of a block in a repeat."""
        cost = start_measuring()
        self._make_table(*item)
        return cost()

    def make_member(self, item: tuple[int, int]) -> TaskCost:
        """Train the member of a repeat that leaves out a fold."""
        cost = start_measuring()
        self._make_member(*item)
        return cost()

    def _make_table(self, repeat: int, block: int) -> State:
        queries, fold = self.rows(block), self.folds[repeat][block]
        scores = np.empty((queries.n_rows, 2))
        for held_out in np.unique(fold).tolist():
            out = fold == held_out
            local, unseen = self.without(repeat, held_out), queries[out]
            scores[rows_of(queries, out)] = linear_scores(
                local.predict_local(unseen), unseen, local.model_.highest_novelty
            )
        memory = None if self.memory is None else self.memory(block)
        table = queries.replace(
            X=self.view.table(queries, scores[:, 0], memory) if self.settings.learns else queries.X,
            feature_names=(),
            doc_id=None,
            query_columns={},
            doc_columns={},
        )
        return self._kept(_name("tables", repeat, block), {**table.get_state(), "linear": scores})

    def _make_member(self, repeat: int, held_out: int) -> State:
        seen, out = self.split(repeat, held_out, range(len(self.folds[repeat])))
        seed = self.settings.seed + repeat * self.n_members + held_out
        member = _copy_with_seed(self.settings, seed).fit(seen, validation=out)
        state = {**member.get_state(), "curve": member.validation_ndcg_}
        return self._kept(_name("trees", repeat, held_out), state)

    def split(self, repeat: int, held_out: int, blocks: Iterable[int]) -> tuple[QuerySet, QuerySet]:
        """Return what trees see of the queries of some blocks: of all folds but one, and of that one."""
        seen, out = [], []
        for block in blocks:
            table, fold = QuerySet.from_state(self._table(repeat, block), ()), self.folds[repeat][block]
            seen.append(table[fold != held_out])
            out.append(table[fold == held_out])
        return _together(seen), _together(out)

    def _scores(self, members: Sequence[LambdaMART], repeat: int, block: int) -> Float64:
        """Return the standardized out-of-fold scores of trees, local and global model of a block."""
        state, fold = self._table(repeat, block), self.folds[repeat][block]
        table = QuerySet.from_state(state, ())
        scores = np.empty((table.n_rows, 3))
        scores[:, 1:] = state["linear"]
        for held_out in np.unique(fold).tolist():
            rows = rows_of(table, fold == held_out)
            member = members[repeat * self.n_members + held_out] if self.settings.learns else members[0]
            scores[rows, 0] = member.predict(table.X[rows])
        return standardize(scores, table.offsets)

    def _table(self, repeat: int, block: int) -> State:
        try:
            table = self.store.read(_name("tables", repeat, block))
        except DamagedFolderError:
            table = self._make_table(repeat, block)
        return table if self.seen is None else {**table, "X": table["X"][:, self.seen]}

    def _member(self, repeat: int, held_out: int) -> tuple[LambdaMART, Float64]:
        try:
            state = self.store.read(_name("trees", repeat, held_out))
        except DamagedFolderError:
            state = self._make_member(repeat, held_out)
        member = _copy_with_seed(self.settings, self.settings.seed)
        return member.set_state(state, trusted=True), state["curve"]

    def _kept(self, name: str, state: State) -> State:
        self.store.write(name, state)
        return state


def few_trees(n_rows: int) -> LambdaMART:
    """Return the trees that decide what a bag sees: far fewer than its members have, and quick to train."""
    return LambdaMART(60, n_leaves=15, learning_rate=0.15, min_rows_in_leaf=max(5, min(50, n_rows // 100)))


def rows_of(queries: QuerySet, chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows belong to the chosen queries."""
    rows: NDArray[np.bool_] = np.repeat(chosen, queries.sizes)
    return rows


def n_columns_seen(n_features: int, local: bool) -> int:
    """Return the number of columns that trees see: each value with its z-score and rank."""
    return 3 * (n_features + local)


def importances(members: Sequence[LambdaMART], n_features: int, view: TreeView) -> Float64:
    """Return the mean importance of each feature with its standing; the rest to 1 is that of the other columns."""
    each: Float64 = np.mean([member.feature_importances_ for member in members], axis=0)
    # Values, z-scores and ranks of the features come first, in this order.
    shares: Float64 = each[: view.ends(n_features)[0]].reshape(-1, n_features).sum(axis=0)
    return shares


def linear_scores(local: LocalPrediction, queries: QuerySet, highest_novelty: float) -> Float64:
    """Return the scores of the local and of the global model, which replaces the local one for a query without kin."""
    without_kin = rows_of(queries, local.novelty > highest_novelty)
    return np.column_stack([np.where(without_kin, local.global_scores, local.scores), local.global_scores])


def best_number_of_trees(curves: list[Float64], n_queries: Int64) -> int:
    """Return the number of trees that is best for single members.

    The decision rests on one curve over all judged queries, because that of a single fold is too noisy.
    """
    together = np.average(curves, axis=0, weights=n_queries)
    smooth = np.convolve(np.pad(together, _SMOOTH // 2, mode="edge"), np.full(_SMOOTH, 1 / _SMOOTH), "valid")
    return int(np.argmax(smooth)) + 1


def n_trees_of_bag(best: int, n_grown: int) -> int:
    """Return how many trees of each member a bag ranks with, given the number that is best for single members.

    Averaging reduces overfitting, so a bag can use more trees than one of its members alone.
    """
    return min(2 * best, n_grown)


def _copy_with_seed(settings: LambdaMART, seed: int) -> LambdaMART:
    copied: LambdaMART = clone(settings).set_params(seed=seed)
    return copied


def _together(parts: list[QuerySet]) -> QuerySet:
    return parts[0] if len(parts) == 1 else QuerySet.concat(parts)


def _name(kind: str, repeat: int, number: int) -> str:
    return f"{kind}-{repeat}-{number}"
