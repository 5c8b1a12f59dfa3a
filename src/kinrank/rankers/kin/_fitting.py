"""Fit the parts of a `KinRanker`: cross-fitting, the bag of trees, the shares."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.blocks import InProcessStore, Store
from kinrank.data.queryset import QuerySet
from kinrank.kin.blocks import standardize
from kinrank.learn.lambdamart import LambdaMART
from kinrank.parallel import Executor, Serial, TaskCost
from kinrank.progress import report_progress
from kinrank.rankers._local.choose import ENOUGH, NEIGHBORS, assign_folds, best_n_neighbors, quality_of
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin._blend import best_shares
from kinrank.rankers.kin._model import INGREDIENTS, KinModel
from kinrank.rankers.kin._parts import weights_that_pay
from kinrank.rankers.kin._settings import KinParameters, cell_part, knn_part, tree_sample, tree_settings
from kinrank.rankers.kin._trees import (
    BagTraining,
    JudgedBlocks,
    MemoryColumns,
    Progress,
    QueriesInMemory,
    TreeView,
    Without,
    n_trees_of_bag,
    only_judgments,
    spread_over,
    sums_of_folds,
    weights_differ,
)
from kinrank.rankers.kin.settings import KinSettings
from kinrank.rankers.knn import KnnRanker

_MOST_REPEATS = 3
_ENOUGH_ROWS = 50_000  # that need no repeat, as 2,000 queries do not
_NEIGHBORS_IN_CELLS = (*NEIGHBORS, 1_600, 3_200, 6_400, 12_800)  # k grows with the data; cells make that affordable


def _report(kind: str, done: int, total: int, _: TaskCost) -> None:
    """Report the progress of a fit that nobody follows task by task."""
    report_progress({"tables": "local scores", "trees": "tree models"}[kind], done, total)


@dataclass(frozen=True, eq=False)
class KinFitting:
    """Fits the parts of a `KinRanker` to judged queries, with vectors if their texts are encoded."""

    ranker: KinParameters
    """The ranker, with its parameters."""
    store: Store = field(default_factory=InProcessStore)
    """Keeps what trees see and the trees themselves, so that an interrupted job resumes."""
    executor: Executor = field(default_factory=Serial)
    """Runs the tasks: one per block of queries, then one per tree model."""
    progress: Progress = _report
    """Called after each task."""
    memory: MemoryColumns | None = None
    """The columns of memory of the judged queries that trees learn from, each query's from others."""

    @property
    def settings(self) -> KinSettings:
        """The settings of the ranker."""
        return KinSettings.of(self.ranker.settings)

    def fit(self, queries: QuerySet) -> KinModel:
        """Fit to queries in memory."""
        if self.settings.n_cells is not None:
            cells = cell_part(self.ranker).fit(queries)
            return self.fit_to_cells(cells, QueriesInMemory(tree_sample(self.ranker, len(queries)).of(queries)))
        kept = QueriesInMemory(queries)
        folds = self.assign_folds(queries)
        without = partial(_fitted_without, knn_part(self.ranker, NEIGHBORS[0]), kept, folds)
        k = self._choose_neighbors(without, queries, folds[:1], _fewest_others(folds, len(queries)))
        local = knn_part(self.ranker, k)
        without = partial(_fitted_without, local, kept, folds)
        return self._fit_trees(clone(local).fit(queries), kept, queries, folds, without, decide=True)

    def fit_to_cells(self, cells: CellRanker, kept: JudgedBlocks) -> KinModel:
        """Fit everything else, given the sums over cells of all judged queries.

        `cells` has the sums of all judged queries, `kept` the queries that trees learn from.
        """
        judged = only_judgments(kept, self.ranker.group_column)
        folds = self.assign_folds(judged)
        alike = cell_part(self.ranker)
        without = partial(_without_fold, cells, sums_of_folds(cells.model_.plan, kept, folds))
        n_queries = int(cells.model_.training_set.counts.sum())
        positions = spread_over(len(judged), ENOUGH)
        k = self._choose_neighbors(
            without,
            kept.take(positions),
            [fold[positions] for fold in folds[:1]],
            _fewest_others(folds, n_queries),
            _NEIGHBORS_IN_CELLS,
        )
        for part in (alike, cells):
            part.set_params(n_neighbors=k)
        return self._fit_trees(cells, kept, judged, folds, without)

    def assign_folds(self, queries: QuerySet) -> list[Int64]:
        """Return the fold of each query in each repeat of the cross-fitting; no repeat if there are too few queries."""
        ranker, repeats = self.ranker, self.settings.n_repeats
        if repeats == "auto":
            few = min(-(-ENOUGH // max(len(queries), 1)), -(-_ENOUGH_ROWS // max(queries.n_rows, 1)))
            repeats = int(np.clip(few, 1, _MOST_REPEATS))
        seeds = range(ranker.seed, ranker.seed + repeats)
        folds = (assign_folds(queries, self.settings.n_members, ranker.group_column, seed) for seed in seeds)
        return [fold for fold in folds if fold is not None]

    def _choose_neighbors(
        self, without: Without, queries: QuerySet, folds: list[Int64], n_seen: int, tried: Sequence[int] = NEIGHBORS
    ) -> int:
        """Return k, chosen on held-out queries if it is not set."""
        if self.ranker.n_neighbors != "auto":
            return int(self.ranker.n_neighbors)
        if not folds or not self.ranker.local:
            return NEIGHBORS[0]
        return best_n_neighbors(lambda held_out: without(0, held_out), queries, folds[0], n_seen, tried)

    def _fit_trees(
        self,
        local: KnnRanker | CellRanker,
        kept: JudgedBlocks,
        judged: QuerySet,
        folds: list[Int64],
        without: Without,
        *,
        decide: bool = False,
    ) -> KinModel:
        """Fit a bag per repeat, and decide on its size and the shares by the mean out-of-fold scores of all repeats.

        If `decide`, weights per query must pay: trees that see no score of the query's own model, nor the standing of
        values, are tried, too.
        """
        if not folds:
            alone = "global" if self.ranker.base is None else "base"
            shares = dict.fromkeys(INGREDIENTS, 0.0) | {alone: 1.0}
            return KinModel.of(local, [], shares, {}, TreeView())
        n_memory = 0 if self.memory is None else self.memory.n_columns
        view = TreeView(not weights_differ(judged), bool(self.ranker.local), n_memory)
        settings: LambdaMART = tree_settings(self.ranker).set_params(seed=self.ranker.seed)
        training = BagTraining(
            rows=kept,
            folds=[kept.split(fold) for fold in folds],
            without=without,
            view=view,
            settings=settings,
            n_members=self.settings.n_members,
            store=self.store,
            memory=self.memory,
        )
        records = []
        if decide and self.ranker.local == "auto" and settings.learns and not weights_differ(judged):
            training, found = weights_that_pay(training, judged)
            view, records = training.tree_view, [found]
        bag = training.run(self.executor, self.progress)
        own_models = bool(self.ranker.local) and training.seen is None
        by_base = np.zeros((judged.n_rows, 1)) if self.ranker.base is None else judged.X[:, -1:].astype(np.float64)
        parts = standardize(np.hstack([bag.parts, by_base]), judged.offsets)
        shares, record = self._decide(judged, parts, own_models)
        members = [model.keep_trees(n_trees_of_bag(bag.n_trees, bag.n_grown)) for model in bag.members]
        if not settings.learns:
            view = TreeView(standing=False, local=False)
        held_out = parts @ np.array([shares[name] for name in INGREDIENTS])
        return KinModel.of(local, members, shares, record, view, records, held_out)

    def _decide(self, queries: QuerySet, parts: Float64, local: bool) -> tuple[dict[str, float], dict[str, float]]:
        """Return the shares by the standardized out-of-fold scores of each ingredient, and the quality of each.

        If not `local`, weights per query have no share.
        """
        linear = ["local", "global"] if local else ["global"]
        measured = list(INGREDIENTS[:3])
        if self.ranker.base is not None:
            linear.append("base")
            measured.append("base")
        quality = {name: quality_of(parts[:, INGREDIENTS.index(name)], queries) for name in measured}
        # The first is kept alone, unless a blend is better. With too few rows to split, the trees tie all candidates.
        blendable = ["trees", *linear] if parts[:, 0].any() else list(reversed(linear))
        shares, blended = best_shares(parts[:, [INGREDIENTS.index(part) for part in blendable]], queries)
        share_of = dict.fromkeys(INGREDIENTS, 0.0) | dict(zip(blendable, shares.tolist(), strict=True))
        return share_of, {**quality, "blend": blended}


# Functions of the module, not closures: tasks may run in other processes.


def _fitted_without(
    settings: KnnRanker, kept: JudgedBlocks, folds: list[Int64], repeat: int, held_out: int
) -> KnnRanker:
    """Return the local ranker fitted on the queries of the other folds."""
    return copy(settings).fit(kept.take(np.flatnonzero(folds[repeat] != held_out)))


def _without_fold(whole: CellRanker, sums: list[list[State]], repeat: int, held_out: int) -> CellRanker:
    """Return the local ranker without the packed cells of a fold: sums add up, so nothing is fitted again.

    Scaling, description and cells stay those of all judged queries; they do not depend on grades.
    """
    return whole.without(sums[repeat][held_out])


@dataclass(frozen=True, eq=False)
class ColumnsInMemory:
    """The columns of memory of blocks in memory."""

    blocks: Sequence[Float32]

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return int(self.blocks[0].shape[1])

    def __call__(self, block: int) -> Float32:
        """Return the columns of a block."""
        return self.blocks[block]


def _fewest_others(folds: list[Int64], n_queries: int) -> int:
    """Return how many queries are left at least if a fold is held out."""
    return n_queries - int(np.bincount(folds[0]).max()) if folds else n_queries
