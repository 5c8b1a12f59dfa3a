"""Find the kin of a query by meaning: the known queries whose vectors have the highest cosine with its own.

Up to 16,384 vectors, all are compared. Above that, all are compared in the 64 directions in which the first 16,384
differ most, and the nearest by these in full. Above 60 million numbers, a graph of FAISS (HNSW) finds the nearest if
FAISS is installed. It is built by `fit` and when a model is stored; vectors that came since are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, GrowingRows, Int64, State
from kinrank.errors import DataError
from kinrank.kin.known import Keys, KnownIndex, Near
from kinrank.registry import import_extra

_COMPARED = 60_000_000  # numbers that are compared in some 15 ms
_LINKS, _WIDTH, _BUILD_WIDTH = 32, 200, 80  # of the graph: links of a vector, and how many are kept while searching
_CHUNK = 8_000_000  # similarities that are computed at once
_SKETCHED, _DIRECTIONS = 16_384, 64  # vectors that are all compared in full; above, in so many directions first
_IN_FULL, _IN_FULL_EACH = 1_000, 20  # vectors that are then compared in full, at least, and for each that is wanted


class VectorIndex(KnownIndex):
    """Known queries, found by vectors, which are scaled to unit length.

    A similarity below 0 counts as 0, and vectors without any similarity are not found.

    Examples
    --------
    >>> index = VectorIndex().fit([[1.0, 0.0], [0.0, 2.0]])
    >>> places, similarities = index.add([[3.0, 3.0]]).nearest(index.describe([[3.0, 0.0]]), 3)
    >>> places.tolist(), similarities.astype(float).round(2).tolist()
    ([[0, 2, -1]], [[1.0, 0.71, 0.0]])
    """

    recall: ClassVar[float] = 0.9
    _first: Float32 = np.empty((0, 0), dtype=np.float32)
    _later: GrowingRows = GrowingRows(_first)
    _graph: Any = None
    _directions: Float32 = _first
    _sketch: GrowingRows = _later  # each vector in these directions

    def fit(self, items: ArrayLike) -> Self:
        """Index vectors, a row each, in place of any earlier ones."""
        return self._set(unit_vectors(items))

    def __len__(self) -> int:
        return len(self._first) + len(self._later)

    @property
    def width(self) -> int:
        """The length of a vector; 0 before there is one."""
        return int(self._first.shape[1])

    @property
    def vectors_(self) -> Float32:
        """The vector of each known query, of unit length."""
        return np.concatenate([self._first, self._later.rows]) if len(self._later) else self._first

    def at(self, places: Int64) -> Float32:
        """Return the vectors of some known queries."""
        found = np.empty((len(places), self.width), dtype=np.float32)
        late = places >= len(self._first)
        found[~late], found[late] = self._first[places[~late]], self._later.rows[places[late] - len(self._first)]
        return found

    def similarities(self, asked: Float32, places: Int64) -> Float32:
        """Return the cosine of a vector, as `describe` returns it, with some of the known ones; at least 0."""
        cosines: Float32 = np.clip(self.at(places) @ asked[0], np.float32(0.0), np.float32(1.0))
        return cosines

    def describe(self, items: ArrayLike) -> Float32:
        """Return vectors of unit length."""
        return unit_vectors(items, self.width)

    def of(self, items: ArrayLike) -> VectorIndex:
        """Return an index of other vectors, which must be as long."""
        return VectorIndex()._set(self.describe(items))

    @classmethod
    def of_blocks(cls, parts: Sequence[VectorIndex]) -> VectorIndex:
        """Return one index of the vectors of several."""
        return cls()._set(np.concatenate([part.vectors_ for part in parts]))

    def take(self, places: NDArray[Any]) -> VectorIndex:
        """Return an index of some of the vectors, in a given order."""
        return VectorIndex()._set(self.vectors_[places])

    def _set(self, vectors: Float32) -> Self:
        self._first, self._later, self._removed = vectors, GrowingRows(vectors[:0]), None
        self._graph = _graph_of(vectors)
        self._draw(vectors)
        return self

    def _draw(self, vectors: Float32) -> None:
        """Describe all vectors by fewer numbers."""
        self._directions, self._sketch = vectors[:0], GrowingRows(vectors[:0, :0])
        if self._graph is None and len(vectors) >= _SKETCHED and vectors.shape[1] > _DIRECTIONS:
            first = np.asarray(vectors[:_SKETCHED], dtype=np.float32)
            self._directions = np.ascontiguousarray(np.linalg.eigh(first.T @ first)[1][:, -_DIRECTIONS:])
            self._sketch = GrowingRows(vectors @ self._directions)

    def _append(self, items: ArrayLike) -> None:
        vectors = unit_vectors(items, self.width)
        if not len(self):
            self._set(vectors)
            return
        self._later = self._later.append(vectors)
        if len(self._sketch):
            self._sketch = self._sketch.append(vectors @ self._directions)
        elif len(self) >= _SKETCHED:
            self._draw(self.vectors_)

    def _nearest(self, asked: Float32, n: int, allowed: NDArray[np.bool_] | None, keys: Keys | None) -> Near:
        places, similarities = np.full((len(asked), n), -1, dtype=np.int32), np.zeros((len(asked), n), dtype=np.float32)
        if not len(self):
            return places, similarities
        step = max(1, _CHUNK // len(self))
        for start in range(0, len(asked), step):
            for row, (found, values) in enumerate(self._compared(asked[start : start + step], n, allowed), start):
                wanted = values > 0.0
                if allowed is not None:
                    wanted &= allowed[found]
                if keys is not None:
                    wanted &= keys[0][found] != keys[1][row]
                best = best_of(found[wanted], values[wanted], n)
                places[row, : len(best[0])], similarities[row, : len(best[0])] = best
        return places, similarities

    def _compared(
        self, asked: Float32, n: int, allowed: NDArray[np.bool_] | None
    ) -> Iterator[tuple[NDArray[np.int64], Float32]]:
        """Yield the places of vectors that may be the nearest of each query, and their products with it."""
        later = np.arange(len(self._first), len(self))
        if len(self._sketch):
            wanted = min(max(_IN_FULL, _IN_FULL_EACH * n), len(self))
            for vector, products in zip(asked, (asked @ self._directions) @ self._sketch.rows.T, strict=True):
                if allowed is not None:
                    products[~allowed] = -2.0
                near = np.sort(np.argpartition(products, len(self) - wanted)[len(self) - wanted :])
                yield near, self.at(near) @ vector
            return
        if self._graph is None:
            everywhere = np.arange(len(self))
            for products in zip(asked @ self._first.T, asked @ self._later.rows.T, strict=True):
                yield everywhere, np.concatenate(products)
            return
        early = None if allowed is None else np.flatnonzero(allowed[: len(self._first)])
        if early is not None and early.size * self.width <= _COMPARED:  # a graph rarely leads to the few
            proposed = [early] * len(asked)
        else:
            proposed = [row[row >= 0] for row in self._from_graph(asked, n, allowed)]
        for vector, near in zip(asked, proposed, strict=True):
            yield np.r_[near, later], np.r_[self._first[near] @ vector, self._later.rows @ vector]

    def _from_graph(self, asked: Float32, n: int, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the places of about the nearest vectors of the graph; -1 in place of none."""
        faiss = import_extra("faiss", "faiss")
        wanted = min(2 * n, len(self._first))  # some may have the key of the query
        selected = {}
        if allowed is not None:
            selected["sel"] = faiss.IDSelectorBitmap(np.packbits(allowed[: len(self._first)], bitorder="little"))
        settings = faiss.SearchParametersHNSW(efSearch=max(_WIDTH, 2 * wanted), **selected)
        found: NDArray[np.int64] = self._graph.search(asked, wanted, params=settings)[1]
        return found

    def _get_state(self) -> State:
        whole = VectorIndex()._set(self.vectors_) if len(self._later) else self
        if len(whole._sketch):
            return {"vectors": whole._first, "directions": whole._directions, "sketch": whole._sketch.rows}
        if whole._graph is None:
            return {"vectors": whole._first}
        return {"vectors": whole._first, "graph": import_extra("faiss", "faiss").serialize_index(whole._graph)}

    def _set_state(self, state: State) -> None:
        self._first = np.asarray(state["vectors"])
        self._later, self._graph = GrowingRows(self._first[:0]), None
        self._directions = np.asarray(state.get("directions", self._first[:0]))
        self._sketch = GrowingRows(np.asarray(state.get("sketch", self._first[:0, :0])))
        if "graph" in state and find_spec("faiss") is not None:
            self._graph = import_extra("faiss", "faiss").deserialize_index(np.array(state["graph"]))


def unit_vectors(items: ArrayLike, width: int = 0) -> Float32:
    """Return vectors as rows of unit length; those of zeros stay so.

    Examples
    --------
    >>> unit_vectors([[3.0, 4.0], [0.0, 0.0]]).astype(float).round(1).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    vectors = np.atleast_2d(np.asarray(items, dtype=np.float32))
    if vectors.size == 0:
        return np.empty((0, vectors.shape[-1] or width), dtype=np.float32)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise DataError(f"vectors must be rows of finite numbers, got shape {vectors.shape}: encode each query as one")
    if width and vectors.shape[1] != width:
        raise DataError(f"vectors must have {width} numbers, got {vectors.shape[1]}: use one encoder for all")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), dtype=np.float32)


def best_of(places: NDArray[Any], similarities: Float32, n: int) -> tuple[NDArray[Any], Float32]:
    """Return the n most similar places, of equally similar ones the first. No similarity is above 1.

    Examples
    --------
    >>> [found.tolist() for found in best_of(np.array([7, 3, 5]), np.float32([0.5, 0.25, 0.5]), 2)]
    [[5, 7], [0.5, 0.5]]
    """
    if len(places) > 4 * n:
        near = similarities >= np.partition(similarities, len(similarities) - n)[len(similarities) - n]
        places, similarities = places[near], similarities[near]
    order = np.lexsort((places, -similarities))[:n]
    return places[order], np.minimum(similarities[order], np.float32(1.0))


def _graph_of(vectors: Float32) -> Any:
    """Return a graph of vectors; None if they are few, or without FAISS."""
    if vectors.size <= _COMPARED or find_spec("faiss") is None:
        return None
    faiss = import_extra("faiss", "faiss")
    graph = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _BUILD_WIDTH
    graph.add(vectors)
    return graph
