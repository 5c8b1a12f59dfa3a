"""The contract of indexes of known queries: `kinrank.kin.letters` finds them by their texts, `vectors` by meaning.

Known queries have places, in the order in which they came. An index is never changed: adding and removing return
another index, which shares memory with the first, so that those who read the first one go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, State
from kinrank.data.hashes import IdHashes

NEIGHBORS = 50
"""How many kin of a query count."""
Near = tuple[NDArray[np.int32], Float32]
"""Places and similarities, a row for each query, most similar first; -1 and 0 in place of none."""
Keys = tuple[IdHashes, IdHashes]
"""A key of each known query, and of each one to look for. Known queries with the same key are not found."""


class KnownIndex(ABC):
    """Known queries, found by a similarity between 0 and 1.

    What is found depends on the known queries and their order alone, not on how many came at once.

    Attributes
    ----------
    recall : float
        The share of the most similar ones that is found at least; 1.0 for exact indexes.
    """

    recall: ClassVar[float] = 1.0
    _removed: NDArray[np.bool_] | None = None

    @abstractmethod
    def fit(self, items: Any) -> Self:
        """Index known queries, in place of any earlier ones."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of places, those of removed queries included."""

    @abstractmethod
    def describe(self, items: Any) -> Any:
        """Return queries as `nearest` looks for them."""

    @abstractmethod
    def of(self, items: Any) -> Self:
        """Return an index of other queries, described as these are."""

    @abstractmethod
    def take(self, places: NDArray[Any]) -> Self:
        """Return an index of some of the queries, in a given order."""

    def add(self, items: Any) -> Self:
        """Return an index that knows further queries, too, after the others. It costs little more than they do."""
        longer = copy(self)
        longer._append(items)
        if self._removed is not None:
            longer._removed = np.r_[self._removed, np.zeros(len(longer) - len(self), dtype=np.bool_)]
        return longer

    def remove(self, places: NDArray[Any] | Sequence[int]) -> Self:
        """Return an index that does not find the queries at some places. All keep their places."""
        other = copy(self)
        removed = np.zeros(len(self), dtype=np.bool_) if self._removed is None else self._removed.copy()
        removed[np.asarray(places, dtype=np.int64)] = True
        other._removed = removed
        return other

    def nearest(
        self, asked: Any, n: int = NEIGHBORS, allowed: NDArray[np.bool_] | None = None, keys: Keys | None = None
    ) -> Near:
        """Return the places and similarities of the most similar known queries, of equally similar ones the first.

        Parameters
        ----------
        asked
            The queries to look for, as `describe` returns them.
        n
            How many to return; fewer have place -1 and similarity 0.
        allowed
            Which known queries may be returned; None: all.
        keys
            A key of each known query and of each query to look for. Known queries with the same key are not returned.
        """
        return self._nearest(asked, n, self.allowed(allowed), keys)

    def allowed(self, wanted: NDArray[np.bool_] | None = None) -> NDArray[np.bool_] | None:
        """Return which places may be found, of some or all; None: all."""
        if self._removed is None:
            return wanted
        return ~self._removed if wanted is None else wanted & ~self._removed

    def get_state(self) -> State:
        """Return arrays that can be stored; those that were removed stay so."""
        return self._get_state() | ({} if self._removed is None else {"removed": self._removed})

    def set_state(self, state: State) -> Self:
        """Restore an index from its arrays, which may be memory-mapped. Nothing is computed again."""
        self._set_state(state)
        self._removed = np.asarray(state["removed"]) if "removed" in state else None
        return self

    @abstractmethod
    def _append(self, items: Any) -> None:
        """Index further queries, without changing memory that other indexes read."""

    @abstractmethod
    def _nearest(self, asked: Any, n: int, allowed: NDArray[np.bool_] | None, keys: Keys | None) -> Near: ...

    @abstractmethod
    def _get_state(self) -> State: ...

    @abstractmethod
    def _set_state(self, state: State) -> None: ...
