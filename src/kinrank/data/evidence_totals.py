"""The looks and choices of candidates, as evidence counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64


@dataclass(frozen=True, eq=False)
class Totals:
    """The looks and choices of each candidate; unpacks into these two."""

    looks: Float64
    choices: Float64
    few: Totals | None = None
    """The part of both that may lower a candidate but not lift it, because too few clients chose it; None: nothing."""

    def __iter__(self) -> Iterator[Float64]:
        return iter((self.looks, self.choices))

    @classmethod
    def zeros(cls, n: int) -> Totals:
        """Return no looks at a number of candidates."""
        return cls(np.zeros(n), np.zeros(n))

    @classmethod
    def sum(cls, parts: Sequence[Totals]) -> Totals:
        """Return the sum of several, at least one.

        Examples
        --------
        >>> one = Totals(np.array([3.0]), np.array([2.0]))
        >>> Totals.sum([one, one.held_back(one)])
        Totals(looks=array([6.]), choices=array([4.]), few=Totals(looks=array([3.]), choices=array([2.]), few=None))
        """
        if len(parts) == 1:
            return parts[0]
        few = [part.few for part in parts if part.few is not None]
        looks, choices = np.sum([tuple(part) for part in parts], axis=0)
        return cls(looks, choices, cls.sum(few) if few else None)

    def held_back(self, few: Totals | None) -> Totals:
        """Return the same, a part of which is by too few clients."""
        return replace(self, few=few)

    def take(self, rows: NDArray[Any]) -> Totals:
        """Return those of some candidates."""
        few = None if self.few is None else self.few.take(rows)
        return Totals(self.looks[rows], self.choices[rows], few)

    def surplus(self, p: Float64) -> Float64:
        """Return the choices beyond those predicted, C - L p; those of too few clients do not raise it.

        Examples
        --------
        >>> own = Totals(np.array([10.0, 10.0]), np.array([4.0, 1.0]))
        >>> own.surplus(np.array([0.2, 0.2])).tolist(), own.held_back(own).surplus(np.array([0.2, 0.2])).tolist()
        ([2.0, -1.0], [0.0, -1.0])
        """
        surplus: Float64 = self.choices - self.looks * p
        if self.few is not None:
            surplus -= np.maximum(self.few.choices - self.few.looks * p, 0.0)
        return surplus
