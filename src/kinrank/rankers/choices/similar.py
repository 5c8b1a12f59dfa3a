"""Evidence of similar queries: what people chose until the fit, and what was judged since."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, Float64, State
from kinrank.data.hashes import IdHashes, keys_of
from kinrank.data.queryset import QuerySet
from kinrank.memory.evidence import Totals
from kinrank.rankers.local.kin_evidence import KinCells, KinEvidence
from kinrank.store import nest, unnest

_CELLS = ("document", "looks", "residuals", "choices")


class SimilarQueries:
    """What similar queries say of candidates.

    Parameters
    ----------
    kin
        The queries of the fit.
    qid, names, points
        The id, name and description of each query that was judged since.
    owner, cells
        The query of each judgment since, and what it counts as.
    """

    def __init__(
        self, kin: KinEvidence, qid: NDArray[Any], names: NDArray[Any], points: Float32, owner: NDArray[Any], cells: Any
    ) -> None:
        self.kin = kin
        self._arrays = qid, names, points, owner
        self._cells = cells
        self._parts = [kin]
        if len(qid):
            order = np.argsort(owner, kind="stable")
            counts = np.bincount(owner, minlength=len(qid))
            ordered = (part[order] for part in cells)
            self._parts.append(kin.of_others(points, names, KinCells(np.r_[0, np.cumsum(counts)], *ordered)))

    @classmethod
    def of(cls, kin: KinEvidence | None, qid: NDArray[Any]) -> SimilarQueries | None:
        """Return the queries of the fit alone, for ids of the type of these; None if they do not help."""
        if kin is None:
            return None
        cells = np.empty(0, dtype=np.uint64), np.empty(0), np.empty(0), np.empty(0)
        return cls(kin, qid[:0], kin.names_[:0], kin.index_.points_[:0], np.empty(0, dtype=np.int64), cells)

    def added(self, queries: QuerySet, seen: Totals, predicted: Float64) -> SimilarQueries:
        """Return these queries and further ones, with their judgments as looks and choices; see `remember`."""
        if queries.doc_id is None or keys_of(queries) is None:
            return self
        qid, names, points, owner = self._arrays
        cells = KinCells.of(queries, seen, predicted)
        return SimilarQueries(
            self.kin,
            np.concatenate([qid, queries.qid]),
            np.concatenate([names, self.kin.names_of(queries)]),
            np.concatenate([points, self.kin.describe(queries)]),
            np.concatenate([owner, np.repeat(np.arange(len(queries)), np.diff(cells.offsets)) + len(qid)]),
            tuple(np.concatenate(pair) for pair in zip(self._cells, cells[1:], strict=True)),
        )

    def without(self, removed: ArrayLike) -> SimilarQueries:
        """Return these queries without the judgments of some."""
        qid, names, points, owner = self._arrays
        kept = ~np.isin(qid, np.asarray(removed))
        rows = kept[owner]
        place = np.cumsum(kept) - 1
        cells = tuple(part[rows] for part in self._cells)
        return SimilarQueries(self.kin, qid[kept], names[kept], points[kept], place[owner[rows]], cells)

    def totals(self, queries: QuerySet, width: float) -> Totals:
        """Return the weighted looks and residuals of the candidates for similar queries."""
        return Totals.sum([each.totals(queries, each.neighbors(queries), width) for each in self._parts])

    def documents(self, query: QuerySet, width: float) -> list[tuple[IdHashes, Float64, Float64]]:
        """Return the documents of similar queries with their weighted looks and residuals; some repeatedly."""
        return [part.of_similar(query, width) for part in self._parts]

    def named(self, query: QuerySet, width: float) -> list[dict[str, tuple[float, float]]]:
        """Return the looks and choices of each candidate of one query for similar queries, judged ones first."""
        found: list[dict[str, tuple[float, float]]] = [{} for _ in range(query.n_rows)]
        for part in reversed(self._parts):
            for known, more in zip(found, part.named(query, width), strict=True):
                known |= more
        return found

    def get_state(self) -> State:
        """Return everything learned."""
        judged = dict(zip(("qid", "names", "points", "owner"), self._arrays, strict=True))
        return nest(kin=self.kin.get_state(), judged=judged | dict(zip(_CELLS, self._cells, strict=True)))

    @classmethod
    def from_state(cls, state: State) -> SimilarQueries | None:
        """Restore what `get_state` returned; None if that is nothing."""
        if not state:
            return None
        judged = unnest(state, "judged")
        cells = tuple(np.asarray(judged[name]) for name in _CELLS)
        qid, names, points, owner = (np.asarray(judged[name]) for name in ("qid", "names", "points", "owner"))
        return cls(KinEvidence().set_state(unnest(state, "kin")), qid, names, points, owner, cells)
