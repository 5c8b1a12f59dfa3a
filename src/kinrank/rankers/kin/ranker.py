"""`KinRanker`, the ranker we recommend: boosted trees that see the score of the query's own model."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Tags

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.normalization import normalize
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import QueryTexts
from kinrank.data.vectors import QueryVectors
from kinrank.describe import Describer
from kinrank.describe.encoders import EncoderSpec
from kinrank.describe.spec import Spec
from kinrank.describe.within_query import relative_features
from kinrank.errors import ParameterError
from kinrank.learn.forest import Forest
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.prepare import Missing, Scale
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers.base import Prediction, WeightedRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.kin.adaptation import AdaptiveLocalPart
from kinrank.rankers.kin.blend import best_shares, standardized_columns
from kinrank.rankers.kin.crossfit import out_of_fold, rows_of
from kinrank.rankers.kin.explanation import KinExplanation, explain_kin, split_trees
from kinrank.rankers.kin.stand_in import fit_stand_ins
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.linear_weights import LinearWeights
from kinrank.rankers.local.base import coefficients
from kinrank.rankers.local.held_out import ENOUGH, MEASURE, NEIGHBORS, assign_folds, best_n_neighbors
from kinrank.store import nest, unnest

INGREDIENTS = ("trees", "local", "global")
_SMOOTH = 11
_MOST_REPEATS = 3


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
    local : bool
        Whether queries have their own models. False leaves out the local score everywhere, to measure what it adds.
    n_members : int
        Folds of the cross-fitting, and tree models in the bag of each repeat.
    n_repeats : int or "auto"
        How often to cross-fit, each time with other folds. All repeats together decide, and all their tree models
        rank. ``"auto"``: once from 2,000 queries, up to three times with fewer.
    trees : LambdaMART, optional
        Settings of the tree models; `n_trees` is the maximum.
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
    seed : int
        Seed for folds and trees.

    Attributes
    ----------
    shares_ : dict
        The shares of trees, local and global model.
    record_ : dict
        Out-of-fold NDCG@10 of each ingredient and of the blend.
    local_ : KnnRanker
        The local model, with its own `explain` and `weights`.
    qid_ : array
        The judged queries of the local model, with those added later.
    members_ : list of LambdaMART
        The bag; empty if there were too few queries to hold any out, and the global model ranks alone.
    forest_ : Forest
        The trees of all members. Set only if there are members.

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
        vectors=True,
        text=True,
        missing=True,
    )

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] = "auto",
        *,
        local: bool = True,
        n_members: int = 4,
        n_repeats: int | Literal["auto"] = "auto",
        trees: LambdaMART | None = None,
        describe: Spec | Describer = "auto",
        encoder: EncoderSpec | None = "ngrams",
        reference: str | int | None = None,
        group_column: str | None = None,
        scale: Scale = "standard",
        missing: Missing = "mean",
        nonnegative: bool = False,
        lower_is_better: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.local = local
        self.n_members = n_members
        self.n_repeats = n_repeats
        self.trees = trees
        self.describe = describe
        self.encoder = encoder
        self.reference = reference
        self.group_column = group_column
        self.scale = scale
        self.missing = missing
        self.nonnegative = nonnegative
        self.lower_is_better = lower_is_better
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    # --- fitting --------------------------------------------------------------------------------------------------

    def _fit(self, queries: QuerySet) -> None:
        self._check_settings(queries)
        self._weight_signs(queries.feature_names)  # raises if a feature is unknown
        queries = self._fit_encoder(queries)
        folds = self._assign_folds(queries)
        self.n_neighbors_ = self._choose_neighbors(queries, folds)
        self.local_ = self._local(self.n_neighbors_).fit(queries)
        self.unseen_qid_ = queries.qid[:0]
        self.members_: list[LambdaMART] = []
        self.shares_ = dict(zip(INGREDIENTS, (0.0, 0.0, 1.0), strict=True))
        self.record_: dict[str, float] = {}
        if folds:
            self._fit_trees(queries, folds)
            self.forest_ = Forest.from_text(*(model.text for model in self.members_))

    def _check_settings(self, queries: QuerySet) -> None:
        whole = isinstance(self.n_neighbors, Integral) and not isinstance(self.n_neighbors, bool)
        if self.n_neighbors != "auto" and not (whole and int(self.n_neighbors) > 0):
            raise ParameterError(f"n_neighbors must be 'auto' or a whole number from 1, got {self.n_neighbors!r}")
        if not (isinstance(self.n_members, Integral) and self.n_members > 1):
            raise ParameterError(f"n_members must be a whole number from 2, got {self.n_members!r}")
        if self.n_repeats != "auto" and not (isinstance(self.n_repeats, Integral) and self.n_repeats > 0):
            raise ParameterError(f"n_repeats must be 'auto' or a whole number from 1, got {self.n_repeats!r}")
        if self.trees is not None and not isinstance(self.trees, LambdaMART):
            raise ParameterError(f"trees must be a LambdaMART, got {self.trees!r}")
        if self.group_column is not None and self.group_column not in queries.query_columns:
            raise ParameterError(
                f"group_column {self.group_column!r} is not a query column: there are {sorted(queries.query_columns)}"
            )

    def _local(self, n_neighbors: int) -> KnnRanker:
        return KnnRanker(
            n_neighbors,
            describe=self.describe,
            encoder=None,  # queries come with their vectors
            reference=self.reference,
            scale=self.scale,
            missing=self.missing,
        )

    def _assign_folds(self, queries: QuerySet) -> list[Int64]:
        """Return the fold of each query in each repeat of the cross-fitting; no repeat if there are too few queries."""
        repeats = self.n_repeats
        if repeats == "auto":
            repeats = int(np.clip(-(-ENOUGH // max(len(queries), 1)), 1, _MOST_REPEATS))
        folds = (assign_folds(queries, self.n_members, self.group_column, self.seed + each) for each in range(repeats))
        return [fold for fold in folds if fold is not None]

    def _choose_neighbors(self, queries: QuerySet, folds: list[Int64]) -> int:
        """Return k, chosen on held-out queries if it is not set."""
        if self.n_neighbors != "auto":
            return int(self.n_neighbors)
        if not folds or not self.local:
            return NEIGHBORS[0]
        return best_n_neighbors(lambda: self._local(NEIGHBORS[0]), queries, folds[0])

    def _fit_trees(self, queries: QuerySet, folds: list[Int64]) -> None:
        """Fit a bag per repeat, and decide on its size and the shares by the mean out-of-fold scores of all repeats."""

        def linear(seen: QuerySet, out: QuerySet, _: int) -> Float64:
            return _linear_scores(self._local(self.n_neighbors_).fit(seen), out)[0]

        self.members_ = []
        tables, curves, sizes = [], [], []
        parts = np.zeros((queries.n_rows, len(INGREDIENTS)))
        for repeat, fold in enumerate(folds):
            scores = out_of_fold(queries, fold, linear, 2)
            table = queries.replace(X=self._table(queries, scores[:, 0]), feature_names=())
            parts[:, 1:] += standardized_columns(scores, queries)
            for held_out in range(self.n_members):
                member = self._tree_settings().set_params(seed=self.seed + repeat * self.n_members + held_out)
                self.members_.append(member.fit(table[fold != held_out], validation=table[fold == held_out]))
                curves.append(member.validation_ndcg_)
                sizes.append(np.count_nonzero(fold == held_out))
            tables.append(table)
        best = _best_number_of_trees(curves, np.array(sizes))
        for repeat, (fold, table) in enumerate(zip(folds, tables, strict=True)):

            def trees(_: QuerySet, out: QuerySet, held_out: int, first: int = repeat * self.n_members) -> Float64:
                return self.members_[first + held_out].keep_trees(best).predict(out.X)[:, None]

            parts[:, :1] += standardized_columns(out_of_fold(table, fold, trees, 1), queries)
        self._decide(queries, standardized_columns(parts, queries))
        # Averaging reduces overfitting, so a bag can use more trees than one of its members alone.
        self.n_trees_ = min(2 * best, len(curves[0]))
        for model in self.members_:
            model.keep_trees(self.n_trees_)

    def _tree_settings(self) -> LambdaMART:
        if self.trees is not None:
            trees: LambdaMART = clone(self.trees)
            return trees
        params = {"feature_fraction": 0.5}
        return LambdaMART(
            n_trees=300, n_leaves=15, learning_rate=0.05, min_rows_in_leaf=50, params=params, seed=self.seed
        )

    def _decide(self, queries: QuerySet, parts: Float64) -> None:
        """Set the shares by the standardized out-of-fold scores of each ingredient."""
        record = [MEASURE.mean(part, queries.grades, queries.offsets) for part in parts.T]
        blendable = [part for part in INGREDIENTS if self.local or part != "local"]
        shares, blended = best_shares(parts[:, [INGREDIENTS.index(part) for part in blendable]], queries)
        self.shares_ = dict.fromkeys(INGREDIENTS, 0.0) | dict(zip(blendable, shares.tolist(), strict=True))
        self.record_ = {**dict(zip(INGREDIENTS, record, strict=True)), "blend": blended}

    def _table(self, queries: QuerySet, local: Float64) -> Float32:
        """Return what trees see: features, their standing, the local score and its standing."""
        parts = [queries.X, relative_features(queries.X, queries.offsets)]
        if self.local:
            score = local.astype(np.float32)[:, None]
            parts += [score, relative_features(score, queries.offsets)]
        return np.hstack(parts)

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
        parts, _, novelty = self._ingredients(queries)
        return Prediction(parts @ self._shares, novelty)

    @property
    def _shares(self) -> Float64:
        return np.array([self.shares_[name] for name in INGREDIENTS])

    def _ingredients(self, queries: QuerySet) -> tuple[Float64, Float32 | None, Float64]:
        """Return the standardized score of each ingredient, what the trees saw, and the novelty of each query."""
        queries = self.encoded(queries)
        scores = np.zeros((queries.n_rows, 3))
        scores[:, 1:], novelty = _linear_scores(self.local_, queries)
        table = None
        if self.members_:
            table = self._table(queries, scores[:, 1])
            scores[:, 0] = self.forest_.predict(table) / len(self.members_)
        return standardized_columns(scores, queries), table, novelty

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        queries = self.encoded(queries)
        parts, _, novelty = self._ingredients(queries)
        preparer, has_kin = self.local_.preparer_, novelty <= self.local_.highest_novelty
        prior = np.where(has_kin[:, None], self.local_.coefficients(queries), coefficients(self.local_.global_))
        if self.normalization is not None:
            queries = queries.replace(X=normalize(queries.X, queries.offsets, self.normalization))
        signs = self._weight_signs(queries.feature_names)
        return LinearWeights(*fit_stand_ins(queries, parts @ self._shares, prior, preparer.factor_, signs))

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
        parts, table, novelty = self._ingredients(queries)
        blended = parts * self._shares
        trees = split_trees(self.members_, queries, blended[:, 0], table)
        has_kin = novelty <= self.local_.highest_novelty
        return explain_kin(self.local_.explain(queries), queries, blended, trees, has_kin)

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
        self.local_ = self._local(self.n_neighbors_).set_state(unnest(state, "local"))
        self.local_.feature_names_, self.local_.n_features_in_ = self.feature_names_, self.n_features_in_
        self.members_ = []
        while parts := unnest(state, f"member{len(self.members_)}"):
            self.members_.append(self._tree_settings().set_state(parts))
        if self.members_:
            self.forest_ = Forest.from_text(*(model.text for model in self.members_))
        self.shares_ = dict(zip(INGREDIENTS, state["shares"].tolist(), strict=True))
        self.record_ = dict(zip((*INGREDIENTS, "blend"), state["record"].tolist(), strict=False))
        return self


def _best_number_of_trees(curves: list[Float64], n_queries: Int64) -> int:
    """Return the number of trees that is best for single members.

    The decision rests on one curve over all judged queries, because that of a single fold is too noisy.
    """
    together = np.average(curves, axis=0, weights=n_queries)
    smooth = np.convolve(np.pad(together, _SMOOTH // 2, mode="edge"), np.full(_SMOOTH, 1 / _SMOOTH), "valid")
    return int(np.argmax(smooth)) + 1


def _linear_scores(local: KnnRanker, queries: QuerySet) -> tuple[Float64, Float64]:
    """Return the scores of the local and of the global model, and the novelty of each query.

    For a query without kin the global model replaces the local one.
    """
    predicted, by_global = local.local_and_global_scores(queries)
    novelty = np.zeros(len(queries)) if predicted.novelty is None else predicted.novelty
    without_kin = rows_of(queries, novelty > local.highest_novelty)
    return np.column_stack([np.where(without_kin, by_global, predicted.scores), by_global]), novelty
