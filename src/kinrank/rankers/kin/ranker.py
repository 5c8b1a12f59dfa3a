"""`KinRanker`, the ranker we recommend: boosted trees that see what similar queries chose."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float32, Float64, State
from kinrank.data.normalization import Normalization, normalization_of, normalize
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import VECTORS
from kinrank.errors import ParameterError
from kinrank.kin import Describer
from kinrank.kin.blocks import Spec
from kinrank.kin.encoders import Encoder, EncoderSpec
from kinrank.kin.encoders.guard import EncoderGuard
from kinrank.learn._prepare import Missing
from kinrank.learn.lambdamart import LambdaMART
from kinrank.memory._reasons import Reasons, reasons_of, texts_like
from kinrank.memory.columns import targets_of
from kinrank.memory.evidence import Evidence, Totals, judged_in
from kinrank.parallel import n_threads_of, use_threads
from kinrank.rankers._local.explanation import named
from kinrank.rankers._local.model import coefficient_rows
from kinrank.rankers._local.neighbor_model import JudgedQueries
from kinrank.rankers._local.texts import (
    encode_texts,
    encoder_state,
    fit_encoder,
    guard_of,
    guarded,
    has_meaning,
    restore_encoder,
)
from kinrank.rankers.base import LinearWeights, Prediction, Ranker, WeightedRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.intake import JudgedArrays, QueryArrays, takes_arrays
from kinrank.rankers.kin._base import NAME as BASE
from kinrank.rankers.kin._base import BasePart, check_stored, fit_base, restored, storable
from kinrank.rankers.kin._chosen import ChosenPart, find_evidence, opened, path_from
from kinrank.rankers.kin._fitting import ColumnsInMemory, KinFitting
from kinrank.rankers.kin._model import RECORDED, IngredientScores, KinModel
from kinrank.rankers.kin._parts import MemoryPart, PartRecord, choose_memory
from kinrank.rankers.kin._settings import check_settings, tree_sample, tree_settings, weight_signs
from kinrank.rankers.kin._stand_in import BoostedWeights, boosted, fit_stand_ins
from kinrank.rankers.kin._trees import importances, weights_differ
from kinrank.rankers.kin.explanation import KinExplanation, explain_kin, split_trees
from kinrank.rankers.kin.settings import KinSettings
from kinrank.rankers.knn import KnnRanker
from kinrank.store import ModelRecord, nest, unnest

_HARDLY_USED = 0.01


class KinRanker(WeightedRanker, Ranker):
    """Boosted trees that see what similar queries chose, and the score of the query's own model.

    *Memory* is what was chosen of a document, or of its site or brand, for this query, for its kin and by everyone
    (`kinrank.memory.columns`). Each part of it is kept if held-out queries say that it pays, and so are weights per
    query; `parts_` has what was found. Memory counts for new judgments at once (`add`, `remove`).

    Three ingredients, all learned from the judged queries:

    - *local*: the linear model of the query's nearest judged queries (`KnnRanker`, pulled to the global model);
    - *global*: the linear model of all of them;
    - *trees*: a bag of LambdaMART models over the features and memory and, if weights per query pay, the standing of
      each value among the query's candidates, and the local score. In training, a query's local score comes from models
      that have seen neither it nor its group. Each tree model leaves out one fold of the queries; the folds together
      decide how many trees to keep.

    The quality of each ingredient on held-out queries decides its share. If queries do not differ, the global model
    can rank alone: it is among the blends. A query that is farther from all judged queries than any of them from the
    others has no kin; the global model replaces its local one.

    Needs ``pip install '.[lightgbm]'``. Grades must be whole numbers from 0 to 30.

    With *evidence*, what people chose for this very query moves its documents (`kinrank.rankers.kin._chosen`), the more
    the more they looked. Live events do so, too, whether or not there was evidence to fit.

    Parameters
    ----------
    base : str, path, Ranker or model, optional
        What to start from: the name of a ranker such as ``"single(learner=lambdamart)"``, a model file of LightGBM or
        XGBoost, or a ranker. Its score is one more feature, and it ranks alone where nothing adds to it. One that is
        fitted already should not have learned from the queries of `fit`; any object with ``predict(X)`` will do.
    evidence : str, path or Evidence, optional
        What people looked at and chose: a folder that ``kinrank clicks --evidence`` writes, which is opened again when
        the model is loaded, or an `Evidence`, which is saved with the model.
    keys : sequence of str, optional
        Columns of documents (`QuerySet.doc_columns`), such as their site or brand, that memory keeps next to documents.
    memory : bool
        Whether to try what this query, its kin and everyone chose. It needs texts and document ids. Columns of memory
        are not tried on grades from clicks, which say how often a document was shown.
    time_column : str, optional
        A query column with the time of each query. Then only earlier queries are remembered for later ones.
    n_neighbors : int or "auto"
        k of the local model; ``"auto"`` tries 10 to 800 on held-out queries.
    local : bool or "auto"
        Whether queries have their own weights. ``"auto"``: if they help held-out queries. False leaves out the local
        score everywhere, to measure what it adds.
    trees : LambdaMART or str, optional
        Settings of the tree models; `n_trees` is the maximum. ``LambdaMART(model=FILE)``, as text
        ``"lambdamart(model=FILE)"``, uses the trees of a model that you have in place of the bag. They see the
        features only, and the shares are right only if they were not trained on these queries.
    describe : str, list, dict, Describer or "auto"
        How a query becomes a point, see `kinrank.kin.Describer`. ``"auto"``: summaries of its candidates and, if
        there are texts or vectors, its text.
    encoder : str, object or function, optional
        How a query's text becomes a vector. ``"ngrams"`` knows its letters only; with any other, or with vectors that
        come with the queries, kin are found by letters and by meaning. See `kinrank.kin.encoders.make_encoder`:
        ``"sentence-transformers:NAME"``, ``"model2vec:NAME"``, ``"fastembed:NAME"``, ``"openai:http://HOST/v1#MODEL"``,
        an object with ``encode``, or a function. If it is down or slow when queries are ranked, kin are found by
        letters only: `guard_` counts that.
    group_column : str, optional
        A query column: queries that share a value are about the same thing and always in the same fold.
    n_jobs : int, optional
        Number of threads for `fit`; -1 for one per usable core. None leaves the limits of the process as they are.
    seed : int
        Seed for folds and trees.
    settings : KinSettings or dict, optional
        What few users change: cells in place of queries, repeats and members of the bag, the preparation of features,
        the signs of weights; see `KinSettings`.

    Attributes
    ----------
    guard_ : EncoderGuard or None
        Stands in for an encoder that is down, and counts its failures; None with ``"ngrams"`` or given vectors.
    memory_ : MemoryPart or None
        What is remembered, and which columns of it trees see; None if memory does not pay, or needs what there is not.
    parts_ : list of PartRecord
        Whether each part of memory was kept, and why.
    chosen_ : ChosenPart or None
        What people chose for queries, and how it counts; None without texts and document ids.
    base_ : BasePart or None
        The fitted base.
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
    model_ : KinModel
        All of these parts.
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
        evidence=True,
        streams=True,
        vectors=True,
        text=True,
        missing=True,
    )
    model_: KinModel
    unseen_: JudgedQueries
    encoder_: Encoder | None
    guard_: EncoderGuard | None = None
    memory_: MemoryPart | None = None
    chosen_: ChosenPart | None = None
    base_: BasePart | None = None
    parts_: Sequence[PartRecord] = ()

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] = "auto",
        *,
        base: str | os.PathLike[str] | Ranker | Any | None = None,
        evidence: str | os.PathLike[str] | Evidence | None = None,
        keys: Sequence[str] | None = None,
        memory: bool = True,
        time_column: str | None = None,
        local: bool | Literal["auto"] = "auto",
        trees: str | LambdaMART | None = None,
        describe: Spec | Describer = "auto",
        encoder: EncoderSpec | None = "ngrams",
        group_column: str | None = None,
        n_jobs: int | None = None,
        seed: int = 0,
        settings: KinSettings | Mapping[str, Any] | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.base = base
        self.evidence = evidence
        self.keys = keys
        self.memory = memory
        self.time_column = time_column
        self.local = local
        self.trees = trees
        self.describe = describe
        self.encoder = encoder
        self.group_column = group_column
        self.n_jobs = n_jobs
        self.seed = seed
        self.settings = settings

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings. Cells add up, but do not keep the ids of their queries."""
        cells = KinSettings.of(self.settings).n_cells is not None
        alone = self.base is None
        remembers = self.memory or self.evidence is not None
        return replace(self._capabilities, weights=alone, replaces=not cells, remembers=remembers)

    @property
    def missing(self) -> Missing:
        """What the linear models read where a value is missing."""
        return KinSettings.of(self.settings).missing

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query before the weights apply; None for features as given."""
        return normalization_of(KinSettings.of(self.settings).scale)

    # --- fitting --------------------------------------------------------------------------------------------------

    def _fit(self, queries: QuerySet) -> None:
        check_settings(self, queries)
        with nullcontext() if self.n_jobs is None else use_threads(n_threads_of(self.n_jobs)):
            self.encoder_ = fit_encoder(self.encoder, queries)
            self.memory_, self.chosen_, self.base_, self.guard_, self.parts_ = None, None, None, None, []
            from_clicks = weights_differ(queries)
            seen = encode_texts(self.encoder_, queries)
            if VECTORS in seen.query_columns:
                self.guard_ = guard_of(self.encoder_, seen.query_columns[VECTORS].shape[1])
            if self.base is not None:
                self.base_, seen = fit_base(self.base, seen, self.group_column, self.seed)
            sampled = tree_sample(self, len(queries)).chosen(queries)  # the queries that trees learn from
            columns = None
            # Grades from clicks tell how often a document was shown, and so would what is remembered of them.
            if self.memory and tree_settings(self).learns and not from_clicks and sampled.any():
                made = self.group_column, self.time_column, self.seed
                meaning = has_meaning(self.encoder_, seen)
                some = seen if sampled.all() else seen[sampled]
                memory, self.parts_ = choose_memory(some, tuple(self.keys or ()), *made, meaning=meaning)
                if memory is not None:
                    self.memory_ = memory if sampled.all() else memory.over(seen)
                    columns = self.memory_.of_training(seen, *made, sampled)
            model = KinFitting(self, memory=None if columns is None else ColumnsInMemory([columns])).fit(seen)
            self.set_model(model, unseen=queries.qid[:0])
            self.learn_choices(seen if sampled.all() else seen[sampled], columns)

    def learn_choices(self, queries: QuerySet, columns: Float32 | None) -> None:
        """Learn what people chose for the encoded queries that trees learned from, with their columns of memory."""
        evidence, held_out, from_clicks = opened(self.evidence), self.model_.held_out, weights_differ(queries)
        if held_out is None or (from_clicks and evidence is not None):
            scores = self.model_.scores(queries, columns)
        else:
            scores = held_out
        unseen = scores if held_out is None else held_out
        self.chosen_ = ChosenPart.of(queries, scores, unseen, evidence, from_clicks=from_clicks)

    def set_model(self, model: KinModel, unseen: NDArray[Any]) -> Self:
        """Use parts that were fitted with these settings; `unseen` are judged queries of the local part only."""
        self.model_, self.n_neighbors_, self.unseen_ = model, model.local.k, JudgedQueries(unseen)
        return self

    @property
    def members_(self) -> list[LambdaMART]:
        """The bag; empty if there were too few queries to hold any out, and the global model ranks alone."""
        return self.model_.members

    @property
    def n_trees_(self) -> int:
        """The number of trees of each member."""
        return self.members_[0].n_trees_ if self.members_ else 0

    @property
    def shares_(self) -> dict[str, float]:
        """The shares of trees, local and global model, and of the base if there is one."""
        return {name: share for name, share in self.model_.shares.items() if name != BASE or self.base_ is not None}

    @property
    def record_(self) -> dict[str, float]:
        """Out-of-fold NDCG@10 of each ingredient and of the blend."""
        return self.model_.record

    @property
    def feature_importances_(self) -> Float64:
        """The share of each feature, with its standing, in what the trees gain."""
        check_is_fitted(self)
        if not self.members_:
            raise AttributeError("there are no trees, because there were too few queries, and no feature importances")
        seen = self.n_features_in_ + (self.base_ is not None)
        return importances(self.members_, seen, self.model_.view)[: self.n_features_in_]

    def remarks(self) -> list[str]:
        """Return the out-of-fold quality of each ingredient, and its share."""
        if not self.members_:
            return ["too few queries, or groups, to hold any out: the global linear model ranks alone"]
        reached = ", ".join(f"{part} {self.record_[part]:.4f}" for part in RECORDED if part in self.record_)
        shares = ", ".join(f"{part} {share:.0%}" for part, share in self.shares_.items() if share)
        return [
            *map(str, [*self.parts_, *self.model_.parts]),
            *([] if self.evidence is None or self.chosen_ is None else [self.chosen_.remark()]),
            f"NDCG @ 10 out of fold: {reached}",
            f"what ranks: {shares}; k = {self.n_neighbors_}",
            *self._on_features(),
        ]

    def _on_features(self) -> list[str]:
        """Return which features the trees hardly use: an engine need not compute what a model is trained without."""
        gains = self.feature_importances_
        order = np.argsort(gains, kind="stable")
        names = [self.feature_names_[i] for i in np.sort(order[np.cumsum(gains[order]) < _HARDLY_USED])]
        if not names or not gains.any():
            return []
        dropped = ",".join(names)
        return [
            f"{len(names)} of {len(gains)} features have less than {_HARDLY_USED:.0%} of what trees gain, together: "
            f"train without them (--columns drop={dropped}) and compare; then kinrank serve asks the engine for fewer"
        ]

    # --- ranking --------------------------------------------------------------------------------------------------

    def _predict(self, queries: QuerySet) -> Float64:
        return self._with_choices(queries, self._model_scores(queries))

    def _model_scores(self, queries: QuerySet) -> Float64:
        """Return the scores before what people chose for this query."""
        encoded = self._described(queries)
        return self.model_.scores(encoded, self._remembered(encoded))

    def _described(self, queries: QuerySet) -> QuerySet:
        """Return queries to rank as `encoded` does, but with vectors of zeros if the encoder is down."""
        return self.encoded(guarded(self.guard_, queries))

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        ingredients = self._ingredients(queries)
        scores = self._with_choices(queries, ingredients.scores @ self.model_.share_of_each)
        return Prediction(scores, ingredients.local.novelty)

    def _with_choices(self, queries: QuerySet, scores: Float64) -> Float64:
        return scores if self.chosen_ is None else self.chosen_.scores(queries, scores)

    def draw(self, queries: QuerySet, seed: int) -> tuple[Float64, Float64]:
        """Return the scores of grouped queries, and scores by rates of choices drawn from what they may be."""
        self.check_features(queries.feature_names)
        scores = self._model_scores(queries)
        return (scores, scores) if self.chosen_ is None else self.chosen_.draw(queries, scores, seed)

    def remembered(self, query: QuerySet, most: int) -> list[str]:
        """Return documents, best first, that people chose for one query and that are not among its candidates."""
        return [] if self.chosen_ is None else self.chosen_.remembered(query, most)

    @property
    def recent_(self) -> Evidence | None:
        """What people chose since the last day of the evidence."""
        return None if self.chosen_ is None else self.chosen_.recent

    def with_recent(self, evidence: Evidence | None) -> Self:
        """Return a copy with what people chose since the last day of the evidence, in place of what it had of that."""
        other = self.copy()
        other.chosen_ = None if self.chosen_ is None else replace(self.chosen_, recent=evidence)
        return other

    def remembering(self, queries: QuerySet) -> Self:
        """Return a copy whose memory has further judged queries, for queries like them. Nothing else learns them."""
        other = self.copy()
        other.memory_ = None if self.memory_ is None else self.memory_.added(self.encoded(queries))
        return other

    def nearest_texts(self, query: QuerySet, least: float) -> list[str]:
        """Return the texts of the known queries whose similarity to one query is above `least`, most similar first."""
        return [] if self.memory_ is None else texts_like(self.memory_.memory, self._described(query), least)

    def boosted_weights(self, queries: QuerySet) -> BoostedWeights:
        """Return the weights of one query, and what is added to the weighted sum of each candidate for what was chosen.

        The boost of a document lifts or lowers it to where it belongs; it is 0 where people have not looked.
        """
        linear = self.weights_with_fidelity(queries)
        scores = self._model_scores(queries)
        values = np.nan_to_num(queries.X)
        if self.normalization is not None:
            values = normalize(queries.X, queries.offsets, self.normalization)
        return boosted(linear, values, queries, scores, self.chosen_)

    def _remembered(self, queries: QuerySet) -> Float32 | None:
        """Return the columns of memory that trees see of encoded queries."""
        return None if self.memory_ is None else self.memory_.columns(queries)

    def _ingredients(self, queries: QuerySet) -> IngredientScores:
        encoded = self._described(queries)
        return self.model_.ingredients(encoded, self._remembered(encoded))

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        queries = self._described(queries)
        ingredients = self._ingredients(queries)
        prior = coefficient_rows(self.model_.linear_models(ingredients.local), queries.n_features)
        if self.normalization is not None:
            queries = queries.replace(X=normalize(queries.X, queries.offsets, self.normalization))
        scores = ingredients.scores @ self.model_.share_of_each
        signs = weight_signs(self, queries.feature_names)
        return LinearWeights(*fit_stand_ins(queries, scores, prior, self.local_.preparer_.factor_, signs))

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were training queries, were added later or have judgments as evidence.

        None if that is unknown.
        """
        masks = [
            mask for mask in (super().learned_from(queries), self.local_.learned_from(queries)) if mask is not None
        ]
        if not masks:
            return None
        masks.append(self.unseen_.find(queries.qid) >= 0)
        evidence = None if self.chosen_ is None else self.chosen_.evidence
        if evidence is not None:
            masks.append(judged_in(evidence, queries))
        seen: NDArray[np.bool_] = np.any(masks, axis=0)
        return seen

    @takes_arrays
    def explain(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> list[KinExplanation]:
        """Explain each query: its kin, its weights, and what each ingredient adds to each score."""
        queries = self._described(self._queries(X, **arrays))
        ingredients = self._ingredients(queries)
        blended = ingredients.scores * self.model_.share_of_each
        trees = split_trees(self.members_, queries, blended[:, 0], ingredients.table, self.model_.view)
        local = ingredients.local
        neighbors = self.local_.model_.explain(queries, local.near, local.models, self.local_)
        without, reasons = blended.sum(axis=1), [[Reasons()] * query.n_rows for query in queries]
        if self.memory_ is not None:
            without = self.model_.scores(queries, self.memory_.nothing(queries.n_rows))
            reasons = [reasons_of(self.memory_.memory, query) for query in queries]
        scores, own = blended.sum(axis=1), Totals.zeros(queries.n_rows)
        if self.chosen_ is not None:
            scores, own = self.chosen_.scores(queries, scores), self.chosen_.totals(queries)
        has_kin = self.model_.has_kin(local)
        explained = explain_kin(neighbors, queries, blended, trees, has_kin, scores, without, reasons, own)
        return named(explained, self.names_, queries)

    def _kin_ids(self) -> NDArray[Any]:
        return self.qid_

    # --- judgments that come and go: the local part learns at once, the trees with the next fit ---------------------

    @property
    def local_(self) -> KnnRanker | CellRanker:
        """The local part, with its own `explain` and `weights`."""
        return self.model_.local

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries that the local part learns from; with cells, the one nearest to each center."""
        return self.local_.qid_

    @property
    def n_judged_(self) -> int:
        """The number of judged queries that the local part learns from; with cells, the number of cells."""
        return self.local_.n_judged_

    @property
    def n_unseen_(self) -> int:
        """The number of judged queries that await a new fit."""
        return len(self.unseen_)

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are those of judged queries that the local part keeps."""
        return self.local_.has_judged(qid)

    def encoded(self, queries: QuerySet) -> QuerySet:
        """Return the queries with a vector each, encoded unless they have vectors, and with the score of the base."""
        encoded = encode_texts(self.encoder_, queries)
        return encoded if self.base_ is None else self.base_.with_score(encoded)

    @property
    def _knn(self) -> KnnRanker:
        if not isinstance(self.local_, KnnRanker):
            raise ParameterError("cells do not keep the ids of their queries: pass the queries themselves to forget")
        return self.local_

    def prepare_to_learn(self) -> Self:
        """Compute what the first `add` or `remove` after loading would take longer for."""
        if isinstance(self.local_, KnnRanker):
            self.local_.prepare_to_learn()
        if self.memory_ is not None:
            self.memory_ = self.memory_.prepared()
        return self

    @takes_arrays
    def add(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Learn from further judged queries without fitting again.

        Memory, the local model of every query and the global model use them at once. The trees and the shares stay as
        they are until the next fit; `n_unseen_` counts what they have not seen. Do not call this while another thread
        predicts.
        """
        queries = self.encoded(self._queries(X, y, **arrays))
        self.local_.add(queries)
        if self.memory_ is not None:
            self.memory_ = self.memory_.added(queries)
        if self.chosen_ is not None:
            self.chosen_ = self.chosen_.added(queries)
        self.names_ = self.names_.added(queries)
        if not len(self.unseen_):
            self.unseen_ = JudgedQueries(queries.qid[:0])  # of the type of the ids
        self.unseen_.add(queries.qid[self.unseen_.find(queries.qid) < 0])
        return self

    def check_learnable(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        self.check_features(queries.feature_names)
        self._knn.check_learnable(self.encoded(queries))
        if self.memory_ is not None:
            targets_of(queries, self.memory_.memory.keys)  # raises if memory could not find its documents

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries by id, in memory and in linear models. The trees forget them with the next fit."""
        self._knn.remove(qid)
        self._forget(qid)
        self._drop_unseen(np.atleast_1d(np.asarray(qid)))
        return self

    @takes_arrays
    def forget(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Subtract judged queries from the cells, given with the same candidates and grades as they were learned.

        The trees forget them with the next fit. Needs `n_cells`; see `CellRanker.forget`.
        """
        queries = self.encoded(self._queries(X, y, **arrays))
        if not isinstance(self.local_, CellRanker):
            raise ParameterError("this needs sums over cells: set n_cells in settings, or use add and remove")
        self.local_.forget(queries)
        self._forget(queries.qid)
        self._drop_unseen(queries.qid)
        return self

    def _forget(self, qid: ArrayLike) -> None:
        if self.memory_ is not None:
            self.memory_ = self.memory_.without(qid)
        if self.chosen_ is not None:
            self.chosen_ = self.chosen_.without(qid)

    def copy(self) -> Self:
        """Return a fitted copy that shares the learned arrays and the trees; what it learns later, it learns alone."""
        other = super().copy()
        other.model_ = replace(self.model_, local=self.local_.copy())
        other.unseen_ = copy(self.unseen_)
        return other

    def _drop_unseen(self, qid: NDArray[Any]) -> None:
        positions = self.unseen_.find(qid)
        self.unseen_.remove(np.unique(positions[positions >= 0]))

    # --- persistence ------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Return everything learned."""
        numbers = {"n_neighbors": np.array(self.n_neighbors_), "unseen_qid": self.unseen_.qid}
        in_memory = self.evidence is None or isinstance(self.evidence, Evidence)  # or loaded with the model
        parts = nest(
            memory={} if self.memory_ is None else self.memory_.get_state(),
            chosen={} if self.chosen_ is None else self.chosen_.get_state(with_evidence=in_memory),
            base={} if self.base_ is None else self.base_.get_state(),
        )
        return self.model_.get_state() | encoder_state(self.encoder_) | parts | numbers

    def storable_params(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the parameters as a model folder can hold them; evidence in memory is among the arrays."""
        params = super().storable_params(folder)
        evidence = params["evidence"]
        in_memory = evidence is None or isinstance(evidence, Evidence)
        return params | {
            "base": storable(self.base),
            "settings": asdict(KinSettings.of(self.settings)),
            "evidence": None if in_memory else path_from(folder, evidence),
        }

    @classmethod
    def from_record(cls, record: ModelRecord, **changed: Any) -> Self:
        """Return the fitted ranker that `save` wrote, with some parameters changed."""
        check_stored(record)
        settings = KinSettings.of(record.params["settings"]).changed or None
        return super().from_record(record, **{"evidence": find_evidence(record), "settings": settings, **changed})

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.encoder_ = restore_encoder(self.encoder, state)
        if self.encoder_ is not None:
            self.guard_ = guard_of(self.encoder_, len(unnest(state, "encoder")["probe"]))
        self.memory_, self.parts_ = MemoryPart.from_state(unnest(state, "memory")), []
        self.chosen_ = ChosenPart.from_state(unnest(state, "chosen"), self.evidence)
        self.base_ = restored(self.base, self.feature_names_, unnest(state, "base"))
        self.set_model(KinModel.from_state(self, int(state["n_neighbors"]), state), state["unseen_qid"])
        names = self.feature_names_ if self.base_ is None else (*self.feature_names_, BASE)
        self.local_.feature_names_, self.local_.n_features_in_ = names, len(names)
        return self
