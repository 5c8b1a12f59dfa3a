"""`KinRanker`, the ranker we recommend: boosted trees that see the score of the query's own model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.blocks import Blocks
from kinrank.data.normalization import normalize
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import QueryTexts
from kinrank.data.vectors import QueryVectors
from kinrank.describe import Describer
from kinrank.describe.encoders import EncoderSpec
from kinrank.describe.spec import Spec
from kinrank.errors import ParameterError
from kinrank.learn import make_learner
from kinrank.learn.forest import Forest
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.prepare import Missing, Scale
from kinrank.learn.rankrls import RankRLS
from kinrank.parallel import Executor, Serial, TaskCost, n_threads_of, use_threads
from kinrank.progress import report_progress
from kinrank.rankers.base import Prediction, WeightedRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin.adaptation import AdaptiveLocalPart
from kinrank.rankers.kin.blend import best_shares, standardized_columns
from kinrank.rankers.kin.crossfit import FittedWithout, SubtractedFold
from kinrank.rankers.kin.explanation import KinExplanation, explain_kin, split_trees
from kinrank.rankers.kin.sample import (
    KeptQueries,
    QueriesInMemory,
    TreeSample,
    only_judgments,
    spread_over,
    sums_of_folds,
)
from kinrank.rankers.kin.stand_in import fit_stand_ins
from kinrank.rankers.kin.trees import (
    BagTraining,
    MemberTraining,
    Progress,
    Without,
    importances,
    linear_scores,
    n_columns_seen,
    what_trees_see,
)
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.linear_weights import LinearWeights
from kinrank.rankers.local.base import coefficients
from kinrank.rankers.local.held_out import ENOUGH, NEIGHBORS, assign_folds, best_n_neighbors, quality_of
from kinrank.rankers.local.intermediate import Memory, Store
from kinrank.rankers.local.nearest import LocalPrediction, NeighborRanker
from kinrank.store import nest, unnest

INGREDIENTS = ("trees", "local", "global")
_MOST_REPEATS = 3
_NEIGHBORS_IN_CELLS = (*NEIGHBORS, 1_600, 3_200, 6_400, 12_800)  # k grows with the data; cells make that affordable
MOST_CELLS = 4_096
"""Number of cells from 40,960 queries on, if it is not set."""
TREE_QUERIES = 50_000
"""Number of queries that trees learn from when training from disk, if it is not set: more gain nothing measurable."""
TREE_VALUES = 300_000_000
"""Upper limit of the numbers that trees see of these queries, 1.2 GB. A worker needs 2.8 GB then."""


class _Ingredients(NamedTuple):
    """The standardized score of each ingredient, a column each, what the trees saw, and the local part."""

    scores: Float64
    table: Float32 | None
    local: LocalPrediction


class KinRanker(AdaptiveLocalPart, WeightedRanker):
    """Boosted trees that see the score of the query's own model, blended with that model.

    Three ingredients, all learned from the judged queries:

    - *local*: the linear model of the query's nearest judged queries (`KnnRanker`, pulled to the global model);
    - *global*: the linear model of all of them;
    - *trees*: a bag of LambdaMART models over the features, the standing of each value among the query's candidates,
      and the local score. In training, a query's local score comes from models that have seen neither it nor its
      group. Each tree model leaves out one fold of the queries; the folds together decide how many trees to keep.

    The quality of each ingredient on held-out queries decides its share. If queries do not differ, the global model
    can rank alone: it is among the blends. A query that is farther from all judged queries than any of them from the
    others has no kin; the global model replaces its local one.

    Needs ``pip install 'kinrank[lightgbm]'``. Grades must be whole numbers from 0 to 30.

    Parameters
    ----------
    n_neighbors : int or "auto"
        k of the local model; ``"auto"`` tries 10 to 800 on held-out queries.
    n_cells : int, optional
        Learn local models from sums over this many cells of similar queries (`CellRanker`), for any number of judged
        queries. None: keep every judged query; when training from disk, a tenth of their number, at most 4,096.
    local : bool
        Whether queries have their own models. False leaves out the local score everywhere, to measure what it adds.
    n_members : int
        Folds of the cross-fitting, and tree models in the bag of each repeat.
    n_repeats : int or "auto"
        How often to cross-fit, each time with other folds. All repeats together decide, and all their tree models
        rank. ``"auto"``: once from 2,000 queries, up to three times with fewer.
    trees : LambdaMART or str, optional
        Settings of the tree models; `n_trees` is the maximum. ``LambdaMART(model=FILE)``, as text
        ``"lambdamart(model=FILE)"``, uses the trees of a model that you have in place of the bag. They see the
        features only, and the shares are right only if they were not trained on these queries.
    tree_queries : int, optional
        Learn trees from a sample of about this many queries, with all queries of a group or none. Needs `n_cells`.
        None: from all of them; when training from disk, from 50,000, or as many as fit in 3 GB.
    describe : str, list, dict, Describer or "auto"
        How a query becomes a point, see `kinrank.describe.Describer`. ``"auto"``: summaries of its candidates and, if
        there are texts or vectors, its text.
    encoder : str, object or function, optional
        How a query's text becomes a vector; see `KnnRanker`.
    reference : str or int, optional
        The feature (such as BM25) whose best candidates describe the query.
    group_column : str, optional
        A query column: queries that share a value are about the same thing and always in the same fold.
    scale, missing
        How features are prepared for the linear models; see `SingleRanker`. Trees read them as they are.
    nonnegative : bool
        Whether `weights` must not be negative, for search engines that accept no others. Ranking does not change.
    lower_is_better : list of str, optional
        Features whose weight must not be positive, regardless of `nonnegative`.
    n_jobs : int, optional
        Number of threads for `fit`; -1 for one per usable core. None leaves the limits of the process as they are.
    seed : int
        Seed for folds and trees.

    Attributes
    ----------
    shares_ : dict
        The shares of trees, local and global model.
    record_ : dict
        Out-of-fold NDCG@10 of each ingredient and of the blend.
    local_ : KnnRanker or CellRanker
        The local model, with its own `explain` and `weights`.
    qid_ : array
        The judged queries of the local model, with those added later; with cells, the one nearest to each center.
    members_ : list of LambdaMART
        The bag; empty if there were too few queries to hold any out, and the global model ranks alone.
    forest_ : Forest
        The trees of all members. Set only if there are members.
    feature_importances_ : float64 array of shape (features,)
        The share of each feature, with its standing, in what the trees gain. The rest to 1 is the share of the local
        score.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=80, seed=0)
    >>> ranker = KinRanker().fit(camps[:60])
    >>> ranker.score(camps[60:])
    1.0
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(
        explains=True,
        weights=True,
        novelty=True,
        adds=True,
        forgets=True,
        replaces=True,
        streams=True,
        vectors=True,
        text=True,
        missing=True,
    )
    enabling_settings: ClassVar[Mapping[str, str]] = {"merges": "n_cells"}

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] = "auto",
        *,
        n_cells: int | None = None,
        local: bool = True,
        n_members: int = 4,
        n_repeats: int | Literal["auto"] = "auto",
        trees: str | LambdaMART | None = None,
        tree_queries: int | None = None,
        describe: Spec | Describer = "auto",
        encoder: EncoderSpec | None = "ngrams",
        reference: str | int | None = None,
        group_column: str | None = None,
        scale: Scale = "standard",
        missing: Missing = "mean",
        nonnegative: bool = False,
        lower_is_better: Sequence[str] | None = None,
        n_jobs: int | None = None,
        seed: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_cells = n_cells
        self.local = local
        self.n_members = n_members
        self.n_repeats = n_repeats
        self.trees = trees
        self.tree_queries = tree_queries
        self.describe = describe
        self.encoder = encoder
        self.reference = reference
        self.group_column = group_column
        self.scale = scale
        self.missing = missing
        self.nonnegative = nonnegative
        self.lower_is_better = lower_is_better
        self.n_jobs = n_jobs
        self.seed = seed

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings. Cells add up, but do not keep the ids of their queries."""
        cells = self.n_cells is not None
        return replace(self._capabilities, merges=cells, replaces=not cells)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    # --- fitting --------------------------------------------------------------------------------------------------

    def _fit(self, queries: QuerySet) -> None:
        self._check_settings(queries)
        with nullcontext() if self.n_jobs is None else use_threads(n_threads_of(self.n_jobs)):
            self._fit_parts(queries)

    def _fit_parts(self, queries: QuerySet) -> None:
        queries = self._fit_encoder(queries)
        if self.n_cells is not None:
            cells = self.cell_part().fit(queries)
            kept = QueriesInMemory(self.tree_sample(len(queries)).of(queries))
            self.learn_from_cells(cells, kept, Memory(), Serial())
            return
        folds = self._assign_folds(queries)
        without = FittedWithout(self._knn(NEIGHBORS[0]), queries, folds)
        self.n_neighbors_ = self._choose_neighbors(without, queries, folds[:1], _fewest_others(folds, len(queries)))
        self.local_ = self._knn(self.n_neighbors_).fit(queries)
        without = replace(without, settings=self._knn(self.n_neighbors_))
        self._fit_trees(QueriesInMemory(queries), queries, folds, without, Memory(), Serial())

    def learn_from_cells(
        self,
        cells: CellRanker,
        kept: KeptQueries,
        store: Store,
        executor: Executor,
        progress: Progress | None = None,
        train_member: MemberTraining | None = None,
    ) -> Self:
        """Learn everything else, given the sums over cells of all judged queries.

        Parameters
        ----------
        cells
            The part that learns from cells, with the sums of all judged queries.
        kept
            The judged queries that trees learn from, with vectors if their texts are encoded.
        store
            Keeps what trees see and the trees themselves, so that an interrupted job resumes.
        executor
            Runs the tasks: one per block of `kept`, then one per tree model.
        progress
            Called after each task.
        train_member
            Trains one tree model; by default, each is a task of the executor.
        """
        judged = only_judgments(kept, self.group_column)
        folds = self._assign_folds(judged)
        without = SubtractedFold(cells, sums_of_folds(cells.plan_, kept, folds))
        places = spread_over(len(judged), ENOUGH)
        n_seen = _fewest_others(folds, int(cells.training_set_.counts.sum()))
        self.n_neighbors_ = self._choose_neighbors(
            without, kept.take(places), [fold[places] for fold in folds[:1]], n_seen, _NEIGHBORS_IN_CELLS
        )
        self.local_ = cells.set_params(n_neighbors=self.n_neighbors_)
        self._fit_trees(kept, judged, folds, without, store, executor, progress, train_member)
        return self

    def _check_settings(self, queries: QuerySet) -> None:
        self._weight_signs(queries.feature_names)  # raises if a feature is unknown
        whole = isinstance(self.n_neighbors, Integral) and not isinstance(self.n_neighbors, bool)
        if self.n_neighbors != "auto" and not (whole and int(self.n_neighbors) > 0):
            raise ParameterError(f"n_neighbors must be 'auto' or a whole number from 1, got {self.n_neighbors!r}")
        if not (isinstance(self.n_members, Integral) and self.n_members > 1):
            raise ParameterError(f"n_members must be a whole number from 2, got {self.n_members!r}")
        if self.n_repeats != "auto" and not (isinstance(self.n_repeats, Integral) and self.n_repeats > 0):
            raise ParameterError(f"n_repeats must be 'auto' or a whole number from 1, got {self.n_repeats!r}")
        for name, count in (("n_cells", self.n_cells), ("tree_queries", self.tree_queries)):
            if count is not None and not (isinstance(count, Integral) and count > 0):
                raise ParameterError(f"{name} must be a whole number from 1, or None, got {count!r}")
        if self.tree_queries is not None and self.n_cells is None:
            raise ParameterError("tree_queries needs n_cells: only sums over cells are cross-fitted by subtraction")
        self._tree_settings()  # raises if they are none
        if self.group_column is not None and self.group_column not in queries.query_columns:
            raise ParameterError(
                f"group_column {self.group_column!r} is not a query column: there are {sorted(queries.query_columns)}"
            )

    def _knn(self, n_neighbors: int) -> KnnRanker:
        """Return the local part that keeps every judged query, not fitted."""
        return KnnRanker(
            n_neighbors,
            describe=self.describe,
            encoder=None,  # queries come with their vectors
            reference=self.reference,
            scale=self.scale,
            missing=self.missing,
        )

    def cell_part(self) -> CellRanker:
        """Return the part that learns from sums over cells, not fitted."""
        return CellRanker(
            n_cells=self.n_cells or MOST_CELLS,
            describe=self.describe,
            reference=self.reference,
            scale=self.scale,
            missing=self.missing,
        )

    def tree_sample(self, n_queries: int) -> TreeSample:
        """Return how to choose the queries that trees learn from, out of about `n_queries`."""
        share = 1.0 if self.tree_queries is None else self.tree_queries / max(n_queries, 1)
        return TreeSample(min(share, 1.0), self.group_column)

    def open_blocks(self, blocks: Blocks, executor: Executor, store: Store) -> Blocks:
        """Check settings against the queries, and return them with vectors if they have texts."""
        self._check_settings(blocks.head())
        return self.encode_blocks(blocks, executor, store)

    def sized_for(self, blocks: Blocks, n_queries: int) -> Self:
        """Return an unfitted copy whose cells and sample of queries suit training from disk, unless they are set."""
        sized: Self = clone(self)
        if sized.n_cells is None:
            sized.n_cells = int(np.clip(n_queries // 10, 1, MOST_CELLS))
        if sized.tree_queries is None:
            values = blocks.total_rows() / n_queries * n_columns_seen(len(blocks.feature_names), self.local)
            sized.tree_queries = int(np.clip(TREE_VALUES / max(values, 1.0), 1, TREE_QUERIES))
        return sized

    def _assign_folds(self, queries: QuerySet) -> list[Int64]:
        """Return the fold of each query in each repeat of the cross-fitting; no repeat if there are too few queries."""
        repeats = self.n_repeats
        if repeats == "auto":
            repeats = int(np.clip(-(-ENOUGH // max(len(queries), 1)), 1, _MOST_REPEATS))
        folds = (assign_folds(queries, self.n_members, self.group_column, self.seed + each) for each in range(repeats))
        return [fold for fold in folds if fold is not None]

    def _choose_neighbors(
        self, without: Without, queries: QuerySet, folds: list[Int64], n_seen: int, tried: Sequence[int] = NEIGHBORS
    ) -> int:
        """Return k, chosen on held-out queries if it is not set."""
        if self.n_neighbors != "auto":
            return int(self.n_neighbors)
        if not folds or not self.local:
            return NEIGHBORS[0]
        return best_n_neighbors(lambda held_out: without(0, held_out), queries, folds[0], n_seen, tried)

    def _fit_trees(
        self,
        kept: KeptQueries,
        judged: QuerySet,
        folds: list[Int64],
        without: Without,
        store: Store,
        executor: Executor,
        progress: Progress | None = None,
        train_member: MemberTraining | None = None,
    ) -> None:
        """Fit a bag per repeat, and decide on its size and the shares by the mean out-of-fold scores of all repeats."""
        self.unseen_qid_ = judged.qid[:0]
        self.members_: list[LambdaMART] = []
        self.shares_ = dict(zip(INGREDIENTS, (0.0, 0.0, 1.0), strict=True))
        self.record_: dict[str, float] = {}
        if not folds:
            return
        training = BagTraining(
            rows=kept,
            folds=[kept.split(fold) for fold in folds],
            without=without,
            local=self.local,
            settings=self._tree_settings().set_params(seed=self.seed),
            n_members=self.n_members,
            store=store,
        )
        bag = training.run(executor, progress or _report, train_member)
        self._decide(judged, standardized_columns(bag.parts, judged))
        # Averaging reduces overfitting, so a bag can use more trees than one of its members alone.
        self.n_trees_ = min(2 * bag.n_trees, bag.n_grown)
        self.members_ = [model.keep_trees(self.n_trees_) for model in bag.members]
        self._join_trees()

    def _join_trees(self) -> None:
        # Trees from a file were trained on features alone.
        self.sees_standing_ = self._tree_settings().learns
        self.forest_ = Forest.from_text(*(model.text for model in self.members_))

    @property
    def feature_importances_(self) -> Float64:
        """The share of each feature, with its standing, in what the trees gain."""
        check_is_fitted(self)
        if not self.members_:
            raise AttributeError("there are no trees, because there were too few queries, and no feature importances")
        return importances(self.members_, self.n_features_in_)

    def _tree_settings(self) -> LambdaMART:
        if self.trees is not None:
            trees = make_learner(self.trees)
            if not isinstance(trees, LambdaMART):
                raise ParameterError(f"trees must be a LambdaMART, got {self.trees!r}")
            return trees
        params = {"feature_fraction": 0.5}
        return LambdaMART(
            n_trees=300, n_leaves=15, learning_rate=0.05, min_rows_in_leaf=50, params=params, seed=self.seed
        )

    def _decide(self, queries: QuerySet, parts: Float64) -> None:
        """Set the shares by the standardized out-of-fold scores of each ingredient."""
        record = [quality_of(part, queries) for part in parts.T]
        blendable = [part for part in INGREDIENTS if self.local or part != "local"]
        if not parts[:, 0].any():  # too few rows to split: all candidates are equal
            blendable = blendable[:0:-1]  # the global model is kept alone, unless a blend is better
        shares, blended = best_shares(parts[:, [INGREDIENTS.index(part) for part in blendable]], queries)
        self.shares_ = dict.fromkeys(INGREDIENTS, 0.0) | dict(zip(blendable, shares.tolist(), strict=True))
        self.record_ = {**dict(zip(INGREDIENTS, record, strict=True)), "blend": blended}

    def remarks(self) -> list[str]:
        """Return the out-of-fold quality of each ingredient, and its share."""
        if not self.members_:
            return ["too few queries, or groups, to hold any out: the global linear model ranks alone"]
        reached = ", ".join(f"{part} {self.record_[part]:.4f}" for part in (*INGREDIENTS, "blend"))
        shares = ", ".join(f"{part} {share:.0%}" for part, share in self.shares_.items() if share)
        return [f"NDCG @ 10 out of fold: {reached}", f"what ranks: {shares}; k = {self.n_neighbors_}"]

    # --- ranking --------------------------------------------------------------------------------------------------

    def _predict(self, queries: QuerySet) -> Float64:
        return self._predict_with_novelty(queries).scores

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        found = self._ingredients(self.encoded(queries))
        return Prediction(found.scores @ self._shares, found.local.novelty)

    @property
    def _shares(self) -> Float64:
        return np.array([self.shares_[name] for name in INGREDIENTS])

    def _ingredients(self, queries: QuerySet) -> _Ingredients:
        """Return the scores of queries, already encoded, by each ingredient."""
        local = self.local_.predict_local(queries)
        scores = np.zeros((queries.n_rows, 3))
        scores[:, 1:] = linear_scores(local, queries, self.local_.highest_novelty)
        table = None
        if self.members_:
            table = queries.X
            if self.sees_standing_:
                table = what_trees_see(queries, scores[:, 1] if self.local else None)
            scores[:, 0] = self.forest_.predict(table) / len(self.members_)
        return _Ingredients(standardized_columns(scores, queries), table, local)

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        queries = self.encoded(queries)
        found = self._ingredients(queries)
        has_kin = found.local.novelty <= self.local_.highest_novelty
        models = [
            model if near else self.local_.global_ for model, near in zip(found.local.models, has_kin, strict=True)
        ]
        prior = np.array([coefficients(model) for model in models]).reshape(len(queries), queries.n_features)
        if self.normalization is not None:
            queries = queries.replace(X=normalize(queries.X, queries.offsets, self.normalization))
        signs = self._weight_signs(queries.feature_names)
        factor = self.local_.preparer_.factor_
        return LinearWeights(*fit_stand_ins(queries, found.scores @ self._shares, prior, factor, signs))

    def _weight_signs(self, feature_names: Sequence[str]) -> NDArray[np.int8] | None:
        return RankRLS(nonnegative=self.nonnegative, lower_is_better=self.lower_is_better).signs(feature_names)

    def explain(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> list[KinExplanation]:
        """Explain each query: its kin, its weights, and what each ingredient adds to each score."""
        queries = self.encoded(self._queries(X, None, qid, group, query_vectors, query_text))
        found = self._ingredients(queries)
        blended = found.scores * self._shares
        trees = split_trees(self.members_, queries, blended[:, 0], found.table)
        has_kin = found.local.novelty <= self.local_.highest_novelty
        neighbors = self.local_.explain_models(queries, found.local.near, found.local.models)
        return explain_kin(neighbors, queries, blended, trees, has_kin)

    # --- persistence ------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Return everything learned."""
        parts = {f"member{i}": model.get_state() for i, model in enumerate(self.members_)}
        return (
            nest(local=self.local_.get_state(), **parts)
            | self._encoder_state()
            | {
                "shares": self._shares,
                "record": np.array([self.record_[name] for name in (*INGREDIENTS, "blend")] if self.record_ else []),
                "n_neighbors": np.array(self.n_neighbors_),
                "unseen_qid": self.unseen_qid_,
            }
        )

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self._restore_encoder(state)
        self.n_neighbors_ = int(state["n_neighbors"])
        self.unseen_qid_ = state["unseen_qid"]
        unfitted: NeighborRanker = self._knn(self.n_neighbors_)
        if self.n_cells is not None:
            unfitted = self.cell_part().set_params(n_neighbors=self.n_neighbors_)
        self.local_ = unfitted.set_state(unnest(state, "local"))
        self.local_.feature_names_, self.local_.n_features_in_ = self.feature_names_, self.n_features_in_
        self.members_ = []
        while parts := unnest(state, f"member{len(self.members_)}"):
            self.members_.append(self._tree_settings().set_state(parts))
        if self.members_:
            self._join_trees()
        self.shares_ = dict(zip(INGREDIENTS, state["shares"].tolist(), strict=True))
        self.record_ = dict(zip((*INGREDIENTS, "blend"), state["record"].tolist(), strict=False))
        return self


def _fewest_others(folds: list[Int64], n_queries: int) -> int:
    """Return how many queries are left at least if a fold is held out."""
    return n_queries - int(np.bincount(folds[0]).max()) if folds else n_queries


def _report(kind: str, done: int, total: int, _: TaskCost) -> None:
    """Report the progress of a fit that nobody follows task by task."""
    report_progress({"tables": "local scores", "trees": "tree models"}[kind], done, total)
