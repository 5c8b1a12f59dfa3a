"""`ChoiceRanker`: what people chose for a query, combined with what a ranker predicts for it."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.hashes import hash_ids
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, StoreError
from kinrank.memory.evidence import JUDGMENT_LOOKS, Evidence, Totals, judged_in
from kinrank.rankers.base import Prediction, Ranker
from kinrank.rankers.capabilities import Capabilities, can_explain, capabilities_of
from kinrank.rankers.choices.explanation import ChoiceExplanation, explain_choices
from kinrank.rankers.choices.fitting import Combination, check_settings, check_wrapped, combine, fits, opened, scores_of
from kinrank.rankers.choices.live import EvidencePart, LiveJudgments, as_evidence, evidence_parts, total_evidence
from kinrank.rankers.choices.memory import remembered_documents
from kinrank.rankers.choices.posterior import Posterior
from kinrank.rankers.choices.similar import SimilarQueries
from kinrank.rankers.choices.stored import find_evidence, from_state, path_from, state_of
from kinrank.rankers.intake import QueryArrays, takes_arrays
from kinrank.rankers.local.judged_queries import JudgedQueries
from kinrank.rankers.names import Names
from kinrank.rankers.wrapped import check_stored, new, restored, storable, unfitted
from kinrank.store import ModelRecord, nest, unnest


class ChoiceRanker(Ranker):
    """Rank by what people chose for this query, on top of any ranker.

    The score of a document is the expected rate of its choices: the prediction of the wrapped ranker, moved towards
    the rate at which people chose the document for this query, the more the more often they looked:

        α = p + (C - L p + g R) / (κ + L + g N)

    p is the wrapped ranker's score as a probability, calibrated on queries that it has not seen. How many looks κ it
    counts as, and how fast evidence ages, is chosen on the clicks of the last fifth of the days. So is g, what N looks
    for similar queries count, where people chose the document R times more than predicted; often 0. A query without
    evidence keeps the scores of the wrapped ranker. Evidence is found by the text of the query and the ids of
    documents; queries without them have none.

    Parameters
    ----------
    ranker : str or Ranker
        The wrapped ranker, such as ``"kin"`` or ``"single(learner=lambdamart)"``. A model that you trained with
        LightGBM or XGBoost is ``"single(learner=lambdamart(model=FILE))"``.
    evidence : str, path or Evidence, optional
        What people looked at and chose: a folder that ``kinrank clicks --evidence`` writes, which is opened again when
        the model is loaded, or an `Evidence`, which is saved with the model. None: only judgments that are added
        later count.
    prefit : bool
        Whether `ranker` is fitted already and only needs to be calibrated, on those queries of `fit` that it has not
        learned from. Any object with ``predict(X)`` will do; to be saved, it must be a `Ranker`.
    similar : bool
        Whether to try what people chose for similar queries.
    judgment_looks : float
        How many looks a judgment counts as that `add` learns.
    n_folds : int
        Folds of the queries for the calibration. From 2,000 queries, only one fold is held out.
    seed : int
        Seed for the folds.

    Attributes
    ----------
    ranker_ : Ranker
        The wrapped ranker, fitted on all queries.
    evidence_, recent_ : Evidence or None
        The evidence, and that of later days, which is not saved.
    combined_ : Combination
        The calibration of scores, and the evidence of similar queries.
    similar_ : SimilarQueries or None
        What is known of similar queries; None if that does not help.
    posterior_ : Posterior
        κ, the half-life, and the discount of similar queries.
    qid_ : array
        The judged queries: those of `fit`, then those that `add` has learned.

    Examples
    --------
    >>> import numpy as np
    >>> from kinrank.memory.evidence import Evidence
    >>> names = {"qid": [1, 1, 2, 2], "doc_id": ["d1", "d2", "d1", "d2"], "query_columns": {"text": ["alien", "heat"]}}
    >>> queries = QuerySet.from_arrays([[3.0], [1.0], [2.0], [0.0]], [1, 0, 1, 0], **names)
    >>> evidence = Evidence.from_cells(["alien", "alien"], ["d1", "d2"], looks=[40, 40], choices=[5, 31])
    >>> ranker = ChoiceRanker("single", evidence).fit(queries)
    >>> np.argsort(-ranker.predict(queries[0])).tolist(), np.argsort(-ranker.predict(queries[1])).tolist()
    ([1, 0], [0, 1])
    """

    recent_: Evidence | None
    _capabilities: ClassVar[Capabilities] = Capabilities(
        explains=True, adds=True, forgets=True, replaces=True, evidence=True, remembers=True
    )

    def __init__(
        self,
        ranker: str | Ranker | Any = "kin",
        evidence: str | os.PathLike[str] | Evidence | None = None,
        *,
        prefit: bool = False,
        similar: bool = True,
        judgment_looks: float = JUDGMENT_LOOKS,
        n_folds: int = 4,
        seed: int = 0,
    ) -> None:
        self.ranker = ranker
        self.evidence = evidence
        self.prefit = prefit
        self.similar = similar
        self.judgment_looks = judgment_looks
        self.n_folds = n_folds
        self.seed = seed

    @property
    def posterior_(self) -> Posterior:
        """How much predictions and evidence count."""
        return self.combined_.posterior

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do: explain and learn judgments by itself, the rest if the wrapped ranker can."""
        wrapped = capabilities_of(unfitted(self.ranker))
        kept = {name: getattr(wrapped, name) for name in ("novelty", "vectors", "text", "missing")}
        return replace(self._capabilities, **kept)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        wrapped = unfitted(self.ranker)
        tags.input_tags.allow_nan = isinstance(wrapped, Ranker) and wrapped.__sklearn_tags__().input_tags.allow_nan
        return tags

    # --- fitting --------------------------------------------------------------------------------------------------

    @property
    def learns_from_grades(self) -> bool:
        """Whether `fit` needs grades: a fitted ranker is calibrated on what people chose."""
        return not self.prefit or self.evidence is None

    def _fit(self, queries: QuerySet) -> None:
        check_settings(self.n_folds, self.judgment_looks)
        check_wrapped(self.ranker, unfitted(self.ranker), prefit=self.prefit)
        self.evidence_, self.recent_ = opened(self.evidence), None
        self.ranker_ = self.ranker if self.prefit else new(self.ranker).fit(queries)
        self.best_grade_ = 1.0 if queries.y is None else max(float(queries.grades.max()), 1.0)
        self.judged_ = JudgedQueries(queries.qid)
        self.live_ = LiveJudgments.none(queries.qid)
        folds = None if self.prefit else (lambda training: new(self.ranker).fit(training), self.n_folds, self.seed)
        self.combined_ = combine(self.ranker_, queries, self.evidence_, folds, self.best_grade_, similar=self.similar)
        self.similar_ = SimilarQueries.of(self.combined_.kin, queries.qid)

    def remarks(self) -> list[str]:
        """Return what fitting found out that is worth printing after training."""
        remarks = self.ranker_.remarks() if isinstance(self.ranker_, Ranker) else []
        if self.evidence_ is None:
            return [*remarks, "no evidence of choices: pass evidence=, a folder of kinrank clicks --evidence"]
        return remarks + self.combined_.remarks(similar=self.similar, fits=fits(self.evidence_))

    # --- ranking --------------------------------------------------------------------------------------------------

    def _predict(self, queries: QuerySet) -> Float64:
        return self._with_choices(queries, scores_of(self.ranker_, queries), self._totals(queries))

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        if isinstance(self.ranker_, Ranker):
            found = self.ranker_.predict_with_novelty(queries)
        else:
            found = Prediction(scores_of(self.ranker_, queries))
        return Prediction(self._with_choices(queries, found.scores, self._totals(queries)), found.novelty)

    def draw(self, queries: QuerySet, seed: int) -> tuple[Float64, Float64]:
        """Return the expected rates of choices of grouped queries, and rates that are drawn from what they may be."""
        self.check_features(queries.feature_names)
        scores, own, similar = scores_of(self.ranker_, queries), self._totals(queries), self._similar_totals(queries)
        return self.combined_.draw(queries, scores, own, similar, np.random.default_rng(seed))

    def _with_choices(self, queries: QuerySet, scores: Float64, own: Totals) -> Float64:
        return self.combined_.rates(queries, scores, own, self._similar_totals(queries))

    def _similar_totals(self, queries: QuerySet) -> Totals | None:
        return None if self.similar_ is None else self.similar_.totals(queries, self.posterior_.width)

    def _totals(self, queries: QuerySet) -> Totals:
        """Return the looks and choices of the candidates, recent ones and judgments among them."""
        return total_evidence(queries, self._parts)

    @property
    def _parts(self) -> list[EvidencePart]:
        return evidence_parts(self.evidence_, self.recent_, self.live_, self.posterior_.half_life)

    def remembered(self, query: QuerySet, most: int) -> list[str]:
        """Return documents, best first, that people chose for one query and that are not among its candidates."""
        return remembered_documents(query, most, self._parts, self.posterior_, self.similar_)

    def with_recent(self, evidence: Evidence | None) -> Self:
        """Return a copy with what people chose since the last day of the evidence, in place of what it had of that."""
        other = self.copy()
        other.recent_ = evidence
        return other

    @takes_arrays
    def explain(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> list[ChoiceExplanation]:
        """Explain the ranking of each query: what people chose, and the order without that."""
        queries = self._queries(X, **arrays)
        scores, own = scores_of(self.ranker_, queries), self._totals(queries)
        moved = self._with_choices(queries, scores, own)
        inner = self.ranker_.explain(queries) if can_explain(self.ranker_) else None
        known, width = self.similar_, self.posterior_.width
        similar = [[] for _ in queries] if known is None else [known.named(query, width) for query in queries]
        return explain_choices(queries, scores, moved, own, similar, inner, self.names_)

    def _first_names(self) -> Names:
        return self.ranker_.names_ if isinstance(self.ranker_, Ranker) else Names()

    def _kin_ids(self) -> NDArray[Any] | None:
        return self.ranker_._kin_ids() if isinstance(self.ranker_, Ranker) else None

    # --- learning from single judgments ---------------------------------------------------------------------------

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries: those of `fit`, then those that were added."""
        return self.judged_.qid

    @property
    def n_judged_(self) -> int:
        """The number of judged queries."""
        return len(self.judged_)

    @property
    def n_unseen_(self) -> int:
        """The number of added queries that the wrapped ranker learns from only with the next fit."""
        return len(self.live_.qid)

    def prepare_to_learn(self) -> Self:
        """Return self: the first `add` is as fast as others."""
        return self

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are those of judged queries."""
        check_is_fitted(self)
        return self.judged_.find(qid) >= 0

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries were training queries, or have human judgments as evidence."""
        learned = super().learned_from(queries)
        judged = np.False_ if self.evidence_ is None else judged_in(self.evidence_, queries)
        return None if learned is None else learned | judged

    def check_learnable(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        self.check_features(queries.feature_names)
        if not queries.judged.any():
            raise DataError("these queries have no grade: pass y=, at least one grade for each query")

    def add(self, X: QuerySet) -> Self:
        """Take the judgments of further queries as evidence; it counts at once.

        For similar queries it counts as much as choices do, by the learned discount.

        Parameters
        ----------
        X
            Judged queries with texts and document ids. Their own ids must be new.
        """
        queries = self._queries(X)
        self.check_learnable(queries)
        known = self.has_judged(queries.qid)
        if known.any():
            raise DataError(f"query {queries.qid[known][0].item()!r} is judged already: remove it first")
        seen = as_evidence(queries, self.judgment_looks, self.best_grade_)
        self.live_ = self.live_.added(queries, seen)
        if self.similar_ is not None:
            predicted = self.combined_.calibration.predict(scores_of(self.ranker_, queries), queries.offsets)
            self.similar_ = self.similar_.added(queries, seen, predicted)
        self.judged_ = copy(self.judged_)
        self.judged_.add(queries.qid)
        if self.learned_from_ is not None:
            self.learned_from_ = np.union1d(self.learned_from_, hash_ids(queries.qid))
        return self

    def remove(self, qid: ArrayLike) -> Self:
        """Forget the judgments of queries. What the wrapped ranker learned from them stays until the next fit."""
        wanted = np.atleast_1d(np.asarray(qid))
        positions = self.judged_.find(wanted)
        if (positions < 0).any():
            raise DataError(f"query {wanted[positions < 0][0].item()!r} is not a judged query")
        self.live_ = self.live_.without(wanted)
        self.similar_ = None if self.similar_ is None else self.similar_.without(wanted)
        self.judged_ = copy(self.judged_)
        self.judged_.remove(np.unique(positions))
        if self.learned_from_ is not None:
            self.learned_from_ = np.setdiff1d(self.learned_from_, hash_ids(wanted))
        return self

    # --- saving ---------------------------------------------------------------------------------------------------

    def storable_params(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the parameters as a model folder can hold them; evidence in memory is among the arrays."""
        params = super().storable_params(folder)
        params["ranker"] = storable(self.ranker)
        evidence = params["evidence"]
        in_memory = evidence is None or isinstance(evidence, Evidence)
        params["evidence"] = None if in_memory else path_from(folder, evidence)
        return params

    @classmethod
    def from_record(cls, record: ModelRecord, **changed: Any) -> Self:
        """Return the fitted ranker that `save` wrote, with some parameters changed."""
        check_stored(record)
        return super().from_record(record, **{"evidence": find_evidence(record), **changed})

    def get_state(self) -> State:
        """Return everything learned."""
        if not isinstance(self.ranker_, Ranker):
            raise StoreError(
                f"a model of type {type(self.ranker_).__name__} cannot be saved: save it as a file of LightGBM or "
                "XGBoost, and wrap 'single(learner=lambdamart(model=FILE))'"
            )
        in_memory = self.evidence is None or isinstance(self.evidence, Evidence)  # or loaded with the model
        evidence = {"evidence": state_of(self.evidence_)} if self.evidence_ is not None and in_memory else {}
        return nest(
            ranker=self.ranker_.get_state(),
            similar={} if self.similar_ is None else self.similar_.get_state(),
            live=self.live_.get_state(),
            **evidence,
        ) | {**self.combined_.get_state(), "best_grade": np.array(self.best_grade_), "fitted": self.judged_.qid}

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.ranker_ = restored(self.ranker, self.feature_names_, unnest(state, "ranker"))
        self.similar_ = SimilarQueries.from_state(unnest(state, "similar"))
        self.combined_ = Combination.from_state(state, None if self.similar_ is None else self.similar_.kin)
        self.best_grade_, self.judged_ = float(state["best_grade"]), JudgedQueries(state["fitted"])
        self.live_ = LiveJudgments(**unnest(state, "live"))
        stored = unnest(state, "evidence")
        self.evidence_, self.recent_ = from_state(stored) if stored else opened(self.evidence), None
        return self
