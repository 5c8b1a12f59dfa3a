"""Expected reciprocal rank: the user reads down the list until satisfied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.errors import DataError, ParameterError
from kinrank.measure.base import Measure
from kinrank.measure.lists import RankedLists


@dataclass(frozen=True, kw_only=True, repr=False)
class ExpectedReciprocalRank(Measure):
    """The expected reciprocal of the position at which the user is satisfied (Chapelle et al. 2009, Eq. 4).

    A document of grade g satisfies the user with probability R = (2^g - 1) / 2^max_grade.

    Notes
    -----
    ``ties="average"`` raises: the expectation over random orders has no simple closed form.

    Examples
    --------
    >>> ERR(max_grade=2).per_query([2.0, 1.0], [1, 2], [0, 2]).tolist()
    [0.53125]
    """

    name: ClassVar[str] = "ERR"

    max_grade: int = 4
    """The highest grade of the scale, whether or not it occurs. Higher grades raise DataError."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.max_grade, bool) or not isinstance(self.max_grade, int) or not 1 <= self.max_grade <= 1000:
            raise ParameterError(f"max_grade must be a whole number from 1 to 1000, got {self.max_grade!r}")
        if self.ties == "average":
            raise ParameterError(
                "ERR does not support ties='average': use ties='pessimistic' and ties='optimistic' as bounds"
            )

    def _values(self, lists: RankedLists) -> Float64:
        if lists.grades.max(initial=0) > self.max_grade:
            raise DataError(
                f"grade {lists.grades.max():g} is above max_grade={self.max_grade}: set the highest grade, such as "
                f"ERR(max_grade={int(np.ceil(lists.grades.max()))})"
            )
        satisfied = (np.exp2(lists.grades) - 1) / 2.0**self.max_grade
        unsatisfied = lists.running(np.multiply, 1 - satisfied, self.k)
        arrives = unsatisfied / (1 - satisfied)  # R < 1, so the last factor can be divided out
        head = lists.head(self.k)
        return lists.total((arrives * satisfied / lists.position)[head], head)

    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        return lists.total(lists.grades > 0) > 0


ERR = ExpectedReciprocalRank()
