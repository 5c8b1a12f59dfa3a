"""The judged queries of a ranker by id, at numbered positions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Int64
from kinrank.growing import GrowingRows


class _AddedPositions:
    """The latest position of each added id, for the copy that has `n` added ids."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}
        self.n = 0


class JudgedQueries:
    """Ids of judged queries. Adding and removing some costs the same however many there are.

    A removed query leaves its position empty. Copies made by `copy.copy` change independently.

    Examples
    --------
    >>> judged = JudgedQueries(np.array(["a", "b"]))
    >>> judged.add(np.array(["ccc"]))
    >>> judged.remove(judged.find(["b"]))
    >>> judged.qid.tolist(), judged.find(["a", "b", "ccc"]).tolist(), len(judged)
    (['a', 'ccc'], [0, -1, 2], 2)
    """

    def __init__(self, qid: NDArray[Any]) -> None:
        self._fitted = qid
        self._order: list[Int64] = []  # of the fitted ids, sorted when it is needed; copies share it
        self._added = GrowingRows(qid[:0])
        self._positions = _AddedPositions()
        self._gone = np.zeros(0, dtype=np.bool_)  # by position, as far as any is gone
        self._n_gone = 0

    def __len__(self) -> int:
        return self.n_positions - self._n_gone

    @property
    def n_positions(self) -> int:
        """The number of positions, with the empty ones."""
        return len(self._fitted) + len(self._added)

    @property
    def changed(self) -> bool:
        """Whether any query was added or removed."""
        return bool(len(self._added) or self._n_gone)

    @property
    def qid(self) -> NDArray[Any]:
        """The ids in the order of positions."""
        if not self.changed:
            return self._fitted
        everything = np.concatenate([self._fitted, self._added.rows])
        ids: NDArray[Any] = everything[self.positions]
        return ids

    @property
    def positions(self) -> Int64:
        """The positions that are not empty."""
        there = np.ones(self.n_positions, dtype=np.bool_)
        there[: len(self._gone)] = ~self._gone
        return np.flatnonzero(there)

    def at(self, positions: Int64) -> NDArray[Any]:
        """Return the ids at some positions."""
        if not len(self._added):
            ids: NDArray[Any] = self._fitted[positions]
            return ids
        n = len(self._fitted)
        added = positions >= n
        ids = np.empty(len(positions), dtype=np.promote_types(self._fitted.dtype, self._added.rows.dtype))
        ids[~added] = self._fitted[positions[~added]]
        ids[added] = self._added.rows[positions[added] - n]
        return ids

    def find(self, qid: ArrayLike) -> Int64:
        """Return the position of each id; -1 for unknown ones."""
        wanted = np.atleast_1d(np.asarray(qid))
        positions = self._find_fitted(wanted)
        added = self._positions_of_added()
        for place, identifier in enumerate(wanted.tolist()) if added else ():
            positions[place] = added.get(identifier, positions[place])
        may_be_gone = (positions >= 0) & (positions < len(self._gone))
        positions[may_be_gone] = np.where(self._gone[positions[may_be_gone]], -1, positions[may_be_gone])
        return positions

    def _find_fitted(self, wanted: NDArray[Any]) -> Int64:
        fitted = self._fitted
        if wanted.dtype.kind != fitted.dtype.kind or not len(fitted):
            comparable = wanted.dtype.kind in "iu" and fitted.dtype.kind in "iu" and len(fitted)
            if not comparable:
                return np.full(len(wanted), -1)
        if not self._order:
            self._order.append(np.argsort(fitted, kind="stable"))
        order = self._order[0]
        # In the type of the fitted ids: else NumPy would convert all of them. Ids that do not fit are not among them.
        same = wanted.astype(fitted.dtype)
        place = np.minimum(np.searchsorted(fitted, same, sorter=order), len(fitted) - 1)
        positions = order[place]
        return np.where(fitted[positions] == wanted, positions, -1)

    def _positions_of_added(self) -> dict[Any, int]:
        """Return the positions of the added ids; built again if another copy has added other ones."""
        if self._positions.n != len(self._added):
            self._positions = _AddedPositions()
            self._note(self._added.rows, 0)
        return self._positions.of

    def _note(self, qid: NDArray[Any], start: int) -> None:
        first = len(self._fitted) + start
        self._positions.of.update((identifier, first + i) for i, identifier in enumerate(qid.tolist()))
        self._positions.n = start + len(qid)

    def add(self, qid: NDArray[Any]) -> None:
        """Append ids that are not known."""
        self._positions_of_added()
        self._note(qid, len(self._added))
        self._added = self._added.append(qid)

    def remove(self, positions: Int64) -> None:
        """Empty some positions, each of which is known."""
        gone = np.zeros(max(len(self._gone), int(positions.max(initial=-1)) + 1), dtype=np.bool_)
        gone[: len(self._gone)] = self._gone
        gone[positions] = True
        self._gone, self._n_gone = gone, self._n_gone + len(positions)
