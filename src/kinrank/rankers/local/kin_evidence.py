"""What people chose for similar queries, beyond what the ranker predicts there."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.hashes import IdHashes, hash_texts, keys_of, lower_bound, query_keys
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.describe import Describer
from kinrank.describe.encoders import Encoder, make_encoder
from kinrank.memory.evidence import Totals
from kinrank.neighbors import NeighborIndex, make_index, restore_index
from kinrank.store import nest, unnest

_NEIGHBORS = 50
_COMPONENTS = 64
_LEAST_WEIGHT = 1e-3  # of a similar query
_ENCODER = "ngrams"


class KinCells(NamedTuple):
    """What is known of the documents of queries, those of a query next to each other and sorted by hash."""

    offsets: Int64
    """Where the documents of each query begin."""
    document: IdHashes
    """The hash of each document."""
    looks: Float64
    """Looks at it."""
    residuals: Float64
    """Choices beyond those predicted, C - L p."""
    choices: Float64
    """Choices."""

    @classmethod
    def of(cls, queries: QuerySet, seen: Totals, predicted: Float64) -> KinCells:
        """Return the candidates of queries that someone looked at.

        Parameters
        ----------
        queries
            Queries with document ids.
        seen
            Looks and choices of their candidates.
        predicted
            The predicted probability of a choice of each.
        """
        assert queries.doc_id is not None
        rows = np.flatnonzero(seen.looks > 0)
        documents = hash_texts(queries.doc_id[rows])
        order = np.lexsort((documents, queries.query_of_row[rows]))
        rows = rows[order]
        counts = np.bincount(queries.query_of_row[rows], minlength=len(queries))
        found = seen.take(rows)
        surplus = found.surplus(predicted[rows])
        return cls(np.r_[0, np.cumsum(counts)], documents[order], found.looks, surplus, found.choices)


class KinEvidence:
    """The looks and residuals of known queries, found by the description of a query.

    A residual is the number of choices beyond those predicted, C - L p. Similar queries so add only what the features
    do not say already. The weight of a known query decreases with its distance.

    Parameters
    ----------
    n_components
        The dimensions to keep of longer descriptions.

    Attributes
    ----------
    names_ : array of str
        The text of each known query, or its id.
    scale_ : float
        The usual distance of a known query to the nearest other one.
    encoder_ : Encoder or None
        Encodes the texts of queries; None if they come with vectors, or have no texts.
    """

    encoder_: Encoder | None

    def __init__(self, n_components: int = _COMPONENTS) -> None:
        self.n_components = n_components

    def fit(self, queries: QuerySet) -> Self:
        """Describe known queries: by their vectors or texts if there are any, else by summaries of their candidates."""
        self.encoder_ = None
        if TEXT in queries.query_columns and VECTORS not in queries.query_columns:
            self.encoder_ = make_encoder(_ENCODER).fit(queries.query_columns[TEXT].tolist())
        queries = self._encoded(queries)
        blocks = "text" if VECTORS in queries.query_columns else "summaries"
        self.describer_ = Describer(blocks).fit(queries)
        dim = self.describer_.transform(queries[:1]).shape[1]
        if dim > self.n_components and len(queries) > self.n_components:
            self.describer_ = Describer(blocks, n_components=self.n_components).fit(queries)
        points = self.describer_.transform(queries)
        self.index_: NeighborIndex = make_index("auto", *points.shape).fit(points)
        self.names_ = self.names_of(queries)
        self._keys = query_keys(self.names_)
        nearest = self.index_.query(points, min(2, len(points)))[0][:, -1]
        self.scale_ = float(np.median(nearest[nearest > 0])) if nearest.any() else 1.0
        return self

    def _encoded(self, queries: QuerySet) -> QuerySet:
        if self.encoder_ is None:
            return queries
        vectors = self.encoder_.encode(queries.query_columns[TEXT].tolist())
        return queries.replace(query_columns={**queries.query_columns, VECTORS: vectors})

    def remember(self, queries: QuerySet, seen: Totals, predicted: Float64) -> Self:
        """Keep the looks and residuals of the queries of `fit`; see `KinCells.of`."""
        self._cells = KinCells.of(queries, seen, predicted)
        return self

    @property
    def cells(self) -> KinCells:
        """What is known of the documents of each query."""
        return self._cells

    def of_others(self, points: Float32, names: NDArray[Any], cells: KinCells) -> KinEvidence:
        """Return what is known of other queries, described in the same way."""
        other = copy(self)
        other.index_ = make_index("auto", *points.shape).fit(points)
        other.names_, other._keys, other._cells = names, query_keys(names), cells
        return other

    def describe(self, queries: QuerySet) -> Float32:
        """Return the description of queries."""
        return self.describer_.points(self._encoded(queries))

    @staticmethod
    def names_of(queries: QuerySet) -> NDArray[Any]:
        """Return the texts of queries, or their ids."""
        return queries.query_columns.get(TEXT, queries.qid).astype(np.str_)

    def neighbors(self, queries: QuerySet) -> tuple[Float64, Int64]:
        """Return the distances, in usual ones, and positions of the nearest known queries, nearest first.

        A known query with the same text is infinitely far: its evidence is the query's own, which counts already.
        """
        distances, places = self.index_.query(self.describe(queries), min(_NEIGHBORS + 1, len(self.names_)))
        keys = keys_of(queries)
        if keys is not None:
            distances = np.where(self._keys[places] == keys[:, None], np.inf, distances)
        return distances / self.scale_, places

    def totals(self, queries: QuerySet, neighbors: tuple[Float64, Int64], width: float) -> Totals:
        """Return the weighted looks and residuals of the candidates for similar queries."""
        total = np.zeros((2, queries.n_rows))
        if queries.doc_id is not None:
            distances, places = neighbors
            weights = np.exp(-0.5 * (distances / width) ** 2)
            _add_kin(*self._cells[:4], places, weights, queries.offsets, hash_texts(queries.doc_id), total)
        return Totals(*total)

    def of_similar(self, query: QuerySet, width: float) -> tuple[IdHashes, Float64, Float64]:
        """Return the documents of queries similar to one, with their weighted looks and residuals; some repeatedly."""
        distances, places = self.neighbors(query)
        weights = np.exp(-0.5 * (distances[0] / width) ** 2)
        near = weights >= _LEAST_WEIGHT
        offsets, document, looks, residuals = self._cells[:4]
        owned = [np.arange(offsets[place], offsets[place + 1]) for place in places[0][near].tolist()]
        rows = np.concatenate([*owned, np.empty(0, dtype=np.int64)])
        weight = np.repeat(weights[near], [len(own) for own in owned])
        return document[rows], weight * looks[rows], weight * residuals[rows]

    def found_cells(self, query: QuerySet, weights: Float64, places: Int64) -> Iterator[tuple[int, int, int]]:
        """Yield a candidate of one query, a known query that has a weight, by its number, and the cell of both."""
        if query.doc_id is None:
            return
        offsets, document = self._cells[:2]
        documents = hash_texts(query.doc_id)
        for near in np.flatnonzero(weights > 0).tolist():
            own = slice(offsets[places[near]], offsets[places[near] + 1])
            for row in np.flatnonzero(np.isin(documents, document[own])).tolist():
                yield row, near, own.start + int(np.searchsorted(document[own], documents[row]))

    def named(self, query: QuerySet, width: float, most: int = 2) -> list[dict[str, tuple[float, float]]]:
        """Return the looks and choices of each candidate of one query for the most similar queries, by their names."""
        distances, places = self.neighbors(query)
        found: list[dict[str, tuple[float, float]]] = [{} for _ in range(query.n_rows)]
        weights = np.exp(-0.5 * (distances[0] / width) ** 2)
        weights[weights < _LEAST_WEIGHT] = 0.0
        for row, near, cell in self.found_cells(query, weights, places[0]):
            if len(found[row]) < most:
                seen = float(self._cells.looks[cell]), float(self._cells.choices[cell])
                found[row][str(self.names_[places[0, near]])] = seen
        return found

    def get_state(self) -> State:
        """Return everything learned."""
        described = {"names": self.names_, "scale": np.array(self.scale_)}
        encoder = {} if self.encoder_ is None else {"encoder": self.encoder_.get_state()}
        parts = nest(describer=self.describer_.get_state(), index=self.index_.get_state(), **encoder)
        return parts | self._cells._asdict() | described

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        encoder = unnest(state, "encoder")
        self.encoder_ = make_encoder(_ENCODER).set_state(encoder) if encoder else None
        describer = unnest(state, "describer")
        self.describer_ = Describer("text" if "text" in describer["blocks"] else "summaries").set_state(describer)
        self.index_ = restore_index("auto", unnest(state, "index"))
        self.names_, self.scale_ = state["names"], float(state["scale"])
        self._keys = query_keys(self.names_)
        self._cells = KinCells(*(np.asarray(state[name]) for name in KinCells._fields))
        return self


@numba.njit(cache=True, nogil=True)
def _add_kin(offsets, document, looks, residuals, places, weights, rows, documents, total):  # type: ignore[no-untyped-def]
    for i in range(len(places)):
        for j in range(places.shape[1]):
            weight = weights[i, j]
            if weight < _LEAST_WEIGHT:
                continue
            start, stop = offsets[places[i, j]], offsets[places[i, j] + 1]
            for row in range(rows[i], rows[i + 1]):
                cell = lower_bound(document, documents[row], start, stop)
                if cell < stop and document[cell] == documents[row]:
                    total[0, row] += weight * looks[cell]
                    total[1, row] += weight * residuals[cell]
