"""`PrecedentRanker`: how the same documents were judged for similar queries, as features of any ranker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_of_query, groups_of
from kinrank.data.texts import TEXT
from kinrank.errors import DataError
from kinrank.measure import NDCG, compare_paired
from kinrank.rankers.base import Prediction, Ranker
from kinrank.rankers.capabilities import Capabilities, can_explain
from kinrank.rankers.intake import QueryArrays, takes_arrays
from kinrank.rankers.local.explanation import named
from kinrank.rankers.names import Names
from kinrank.rankers.precedents.columns import NAMES, Precedents
from kinrank.rankers.precedents.explanation import PrecedentExplanation
from kinrank.rankers.registry import RANKERS
from kinrank.rankers.wrapped import check_stored, new, restored, storable, unfitted
from kinrank.rankers.wrapped_explanation import fields_around
from kinrank.store import ModelRecord, nest, unnest

_PROBE = "single(learner=lambdamart)"  # learns with and without precedents to decide whether they help
_FOLDS, _HELD_OUT = 4, 2  # of the queries, and how many of them are held out one after the other
_CHANCE = 0.05  # p from which on a gain on held-out queries is taken as chance


class PrecedentRanker(Ranker):
    """Ranks with the precedents of each candidate: how the same document was judged for similar queries.

    A wrapped ranker gets further features: how often and how well a candidate was judged for the most similar queries,
    and how similar the nearest query is for which it was relevant, and for which it was not. This helps where queries
    share documents, as in a shop or a help center, and where new queries are like judged ones. Half of the queries is
    held out first, a quarter at a time, to see whether it helps; if not, the wrapped ranker learns alone.

    Precedents need texts and document ids of queries. Without them the wrapped ranker learns alone, too.

    Parameters
    ----------
    ranker : str or Ranker
        The wrapped ranker, such as ``"kin"`` or ``"single(learner=lambdamart)"``.
    group_column : str, optional
        A column of the queries, such as the movie that they look for. Queries of one group are no precedents for each
        other. Pass it if new queries belong to new groups: then judgments of the same group would promise more while
        learning than there is later.
    decide : bool
        Whether to hold out queries, and to use precedents only if they help there.
    seed : int
        Seed for the queries that are held out.

    Attributes
    ----------
    ranker_ : Ranker
        The wrapped ranker, fitted on all queries.
    precedents_ : Precedents or None
        The judgments; None if they do not help, or cannot be looked up.
    gain_ : float or None
        By how much precedents raised the NDCG@10 of LambdaMART on held-out queries; None if that was not tried.

    Examples
    --------
    >>> import numpy as np
    >>> names = {"qid": [1, 1, 2, 2], "doc_id": ["d1", "d2", "d1", "d2"], "query_columns": {"text": ["cat", "cats"]}}
    >>> queries = QuerySet.from_arrays([[0.0], [0.0], [0.0], [0.0]], [0, 1, 0, 1], **names)
    >>> ranker = PrecedentRanker("single", decide=False).fit(queries)
    >>> new = queries[0].replace(query_columns={"text": np.array(["cat food"])})
    >>> ranker.predict(new).argmax()
    np.int64(1)
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(explains=True, remembers=True)
    precedents_: Precedents | None
    gain_: float | None

    def __init__(
        self,
        ranker: str | Ranker = "kin",
        *,
        group_column: str | None = None,
        decide: bool = True,
        seed: int = 0,
    ) -> None:
        self.ranker = ranker
        self.group_column = group_column
        self.decide = decide
        self.seed = seed

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do: explain by itself, and some of what the wrapped ranker can."""
        wrapped = unfitted(self.ranker).capabilities
        kept = {name: getattr(wrapped, name) for name in ("novelty", "vectors", "text", "missing")}
        return replace(self._capabilities, **kept)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = unfitted(self.ranker).__sklearn_tags__().input_tags.allow_nan
        return tags

    # --- fitting --------------------------------------------------------------------------------------------------

    def _fit(self, queries: QuerySet) -> None:
        self.precedents_, self.gain_ = None, None
        group = None if self.group_column is None else groups_of(queries, self.group_column)
        if queries.doc_id is not None and TEXT in queries.query_columns:
            taken = set(NAMES) & set(queries.feature_names)
            if taken:
                raise DataError(f"features are named as precedents are, {sorted(taken)}: rename them")
            helps = not self.decide
            if self.decide:
                self.gain_, helps = self._held_out_gain(queries, group)
            if helps:
                self.precedents_ = Precedents().fit(queries, group)
        self.ranker_ = new(self.ranker).fit(self._with_precedents(queries))

    def _held_out_gain(self, queries: QuerySet, group: NDArray[Any] | None) -> tuple[float | None, bool]:
        """Return by how much precedents help held-out queries, and whether that is more than chance.

        The gain is None with too few queries, or groups, to hold any out.
        """
        if len(queries if group is None else np.unique(group)) < _FOLDS:
            return None, False
        fold = fold_of_query(queries, _FOLDS, group=self.group_column, seed=self.seed)
        alone, joined = np.full((2, len(queries)), np.nan)
        for number in range(_HELD_OUT):
            held_out = fold == number
            train, test = queries[~held_out], queries[held_out]
            precedents = Precedents().fit(train, None if group is None else group[~held_out])
            alone[held_out] = _quality(train, test)
            joined[held_out] = _quality(precedents.transform(train), precedents.transform(test))
        tried = fold < _HELD_OUT
        found = compare_paired(joined[tried], alone[tried], groups=None if group is None else group[tried])
        return found.mean_difference, found.mean_difference > 0 and found.p < _CHANCE

    def remarks(self) -> list[str]:
        """Return what fitting found out that is worth printing after training."""
        if self.precedents_ is None and self.gain_ is None:
            found = (
                "no precedents: they need texts and document ids (doc_id) of the judged queries, and at least "
                f"{_FOLDS} queries, or groups, to hold some out"
            )
        elif self.precedents_ is None:
            found = f"no precedents: they do not surely help held-out queries (NDCG@10 {self.gain_:+.4f})"
        elif self.gain_ is None:
            found = "precedents are used; whether they help was not tried"
        else:
            found = f"precedents raised NDCG@10 by {self.gain_:+.4f} with LambdaMART, on held-out queries"
        return [*self.ranker_.remarks(), found]

    # --- ranking --------------------------------------------------------------------------------------------------

    def _with_precedents(self, queries: QuerySet) -> QuerySet:
        return queries if self.precedents_ is None else self.precedents_.transform(queries)

    def _predict(self, queries: QuerySet) -> Float64:
        return self.ranker_.predict(self._with_precedents(queries))

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        return self.ranker_.predict_with_novelty(self._with_precedents(queries))

    @takes_arrays
    def explain(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> list[PrecedentExplanation]:
        """Explain the ranking of each query: how documents were judged for similar ones, and the order without that."""
        queries = self._queries(X, **arrays)
        known, joined = self.precedents_, self._with_precedents(queries)
        scores = self.ranker_.predict(joined)
        without = scores if known is None else self.ranker_.predict(known.transform_without(queries))
        inner = self.ranker_.explain(joined) if can_explain(self.ranker_) else None
        explained = [
            PrecedentExplanation(
                **around,
                precedents=[[] for _ in range(query.n_rows)] if known is None else known.named(query),
                best_grade=1.0 if known is None else known.best_grade_,
            )
            for query, around in zip(queries, fields_around(joined, without, scores, inner, self.names_), strict=True)
        ]
        return named(explained, self.names_, queries)

    def _first_names(self) -> Names:
        return self.ranker_.names_

    def _kin_ids(self) -> NDArray[Any] | None:
        return self.ranker_._kin_ids()

    # --- saving ---------------------------------------------------------------------------------------------------

    def storable_params(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the parameters as a model folder can hold them."""
        return {**super().storable_params(folder), "ranker": storable(self.ranker)}

    @classmethod
    def from_record(cls, record: ModelRecord, **changed: Any) -> Self:
        """Return the fitted ranker that `save` wrote, with some parameters changed."""
        check_stored(record)
        return super().from_record(record, **changed)

    def get_state(self) -> State:
        """Return everything learned."""
        precedents = {} if self.precedents_ is None else self.precedents_.get_state()
        gain = {} if self.gain_ is None else {"gain": np.array(self.gain_)}
        return nest(ranker=self.ranker_.get_state(), precedents=precedents) | gain

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        precedents = unnest(state, "precedents")
        self.precedents_ = Precedents().set_state(precedents) if precedents else None
        self.gain_ = float(state["gain"]) if "gain" in state else None
        names = (*self.feature_names_, *(NAMES if precedents else ()))
        self.ranker_ = restored(self.ranker, names, unnest(state, "ranker"))
        return self


def _quality(train: QuerySet, test: QuerySet) -> Float64:
    """Return the NDCG@10 of each test query with LambdaMART."""
    scores = RANKERS.make(_PROBE).fit(train).predict(test)
    return (NDCG @ 10).per_query(scores, test.grades, test.offsets)
