"""The precedents of a candidate: how the same document was judged for similar queries."""

from __future__ import annotations

from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64, State
from kinrank.data.hashes import IdHashes, hash_texts, keys_of, query_keys
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.errors import DataError
from kinrank.memory.evidence import Totals
from kinrank.rankers.local.kin_evidence import KinCells, KinEvidence
from kinrank.rankers.precedents.explanation import Precedent
from kinrank.store import nest, unnest

NAMES = (
    "precedents",
    "precedent_grade",
    "nearby_precedents",
    "nearby_precedent_grade",
    "nearest_good_precedent",
    "nearest_bad_precedent",
)
"""How often a candidate was judged for the most similar queries, and its mean grade there; both with weights that
decrease with distance. How similar the nearest query is for which it was relevant, and for which it was not."""
_COMPONENTS = 256  # of the description of a query; with 64, precedents gain less
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two numbers have the same product
_SMOOTHING = np.array([1.0, 0.5])  # judgments of the mean grade that a mean starts from


class Precedents:
    """The judgments of known queries, to be looked up for the candidates of a query.

    The judgments of a query itself never count for it, nor do those of its group. So the candidates of a training
    query have no more precedents than those of a new query will have. Candidates that are not judged count as grade 0,
    as wherever a ranker learns.

    Attributes
    ----------
    known_ : KinEvidence
        The known queries, found by their descriptions, and their judgments.
    rate_ : float
        The mean grade, as a share of the best.
    best_grade_ : float
        The best grade.
    """

    def fit(self, queries: QuerySet, group: NDArray[Any] | None = None) -> Self:
        """Keep the judgments of queries with texts and document ids; `group` has a value for each query."""
        self.best_grade_ = max(float(queries.grades.max()), 1.0)
        grade = np.clip(queries.grades / self.best_grade_, 0.0, 1.0)  # 0 if it is not judged
        once, never = np.ones(queries.n_rows), np.zeros(queries.n_rows)
        self.known_ = KinEvidence(_COMPONENTS).fit(queries).remember(queries, Totals(once, grade), never)
        self.rate_ = float(grade.mean())
        # Explanations tell grade 0 from a candidate that is not judged.
        self._judged = KinCells.of(queries, Totals(once, queries.judged.astype(np.float64)), never).choices > 0
        return self._group_by(None if group is None else np.unique(group, return_inverse=True)[1])

    def _group_by(self, group: Int64 | None) -> Self:
        """Keep the group of each known query, and which texts are known in which groups: one may be in several."""
        self._group = group
        if group is not None:
            self._known_pairs = np.sort(_pairs(query_keys(self.known_.names_), group))
        return self

    def columns(self, queries: QuerySet) -> Float64:
        """Return the values of `NAMES` for each candidate."""
        if queries.doc_id is None:
            raise DataError("the ranker looks up how documents were judged, and these have no ids: pass doc_id")
        similarity, places = self._neighbors(queries)
        found = np.zeros((queries.n_rows, len(NAMES)))
        offsets, document, looks, _, grade = self.known_.cells
        _look_up(
            offsets, document, looks, grade, places, similarity, queries.offsets, hash_texts(queries.doc_id), found
        )
        return self._with_means(found)

    def _with_means(self, found: Float64) -> Float64:
        found[:, 1:4:2] = (found[:, 1:4:2] + _SMOOTHING * self.rate_) / (found[:, 0:4:2] + _SMOOTHING)
        return found

    def transform(self, queries: QuerySet) -> QuerySet:
        """Return queries with the precedents of their candidates as further features."""
        return _joined(queries, self.columns(queries))

    def transform_without(self, queries: QuerySet) -> QuerySet:
        """Return queries with the features of candidates that have no precedents."""
        return _joined(queries, self._with_means(np.zeros((queries.n_rows, len(NAMES)))))

    def named(self, query: QuerySet) -> list[list[Precedent]]:
        """Return the precedents of each candidate of one query, most similar query first."""
        similarity, places = self._neighbors(query)
        found: list[list[Precedent]] = [[] for _ in range(query.n_rows)]
        for row, near, cell in self.known_.found_cells(query, similarity[0], places[0]):
            grade = float(self.known_.cells.choices[cell]) * self.best_grade_ if self._judged[cell] else None
            text = str(self.known_.names_[places[0, near]])
            found[row].append(Precedent(text, float(similarity[0, near]), grade))
        return found

    def _neighbors(self, queries: QuerySet) -> tuple[Float64, Int64]:
        """Return similarities and positions of similar queries; those of the same text or group have similarity 0."""
        if self.known_.encoder_ is not None and TEXT not in queries.query_columns:
            return np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
        distances, places = self.known_.neighbors(queries)  # those of the same text are infinitely far already
        similarity = 1 / (1 + distances**2)  # decreases slowly: trees compare, and far kin must not all be 0
        keys = keys_of(queries)
        if self._group is not None and keys is not None:
            pairs = _pairs(keys[:, None], self._group[places])
            place = np.searchsorted(self._known_pairs, pairs).clip(max=len(self._known_pairs) - 1)
            similarity[self._known_pairs[place] == pairs] = 0.0
        return similarity, places

    def get_state(self) -> State:
        """Return everything learned."""
        group = {} if self._group is None else {"group": self._group}
        numbers = {"rate": np.array(self.rate_), "best_grade": np.array(self.best_grade_), "judged": self._judged}
        return nest(known=self.known_.get_state()) | numbers | group

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.known_ = KinEvidence().set_state(unnest(state, "known"))
        self.rate_, self.best_grade_ = float(state["rate"]), float(state["best_grade"])
        self._judged = np.asarray(state["judged"])
        return self._group_by(np.asarray(state["group"]) if "group" in state else None)


def _pairs(keys: IdHashes, group: Int64) -> IdHashes:
    """Return a hash of the text and the group of each query."""
    return (keys ^ group.astype(np.uint64)) * _MIX ^ keys


def _joined(queries: QuerySet, columns: Float64) -> QuerySet:
    joined = np.empty((queries.n_rows, queries.n_features + len(NAMES)), dtype=np.float32)
    joined[:, : -len(NAMES)], joined[:, -len(NAMES) :] = queries.X, columns
    return queries.replace(X=joined, feature_names=(*queries.feature_names, *NAMES))


@numba.njit(cache=True, nogil=True)
def _look_up(offsets, document, looks, grade, places, similarity, rows, asked, found):  # type: ignore[no-untyped-def]
    """Add up what similar queries say of each candidate, found in a hash table of the candidates of a query."""
    for i in range(len(rows) - 1):
        size = 4
        while size < 4 * (rows[i + 1] - rows[i]):
            size *= 2
        last = np.uint64(size - 1)
        slots = np.full(size, -1, dtype=np.int64)
        for row in range(rows[i], rows[i + 1]):
            slot = np.int64(asked[row] & last)
            while slots[slot] >= 0:
                slot = (slot + 1) % size
            slots[slot] = row
        for j in range(places.shape[1]):
            weight = similarity[i, j]
            if weight == 0.0:
                continue
            start = offsets[places[i, j]]
            for cell in range(start, offsets[places[i, j] + 1]):
                if cell > start and document[cell] == document[cell - 1]:
                    continue
                slot = np.int64(document[cell] & last)
                while slots[slot] >= 0:
                    row = slots[slot]
                    slot = (slot + 1) % size
                    if asked[row] != document[cell]:
                        continue
                    found[row, 0] += looks[cell]
                    found[row, 1] += grade[cell]
                    found[row, 2] += weight * looks[cell]
                    found[row, 3] += weight * grade[cell]
                    nearest = 4 if grade[cell] > 0 else 5
                    found[row, nearest] = max(found[row, nearest], weight)
