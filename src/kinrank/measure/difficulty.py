"""Queries by how hard they are, told by how many relevant documents they have (METHODS: section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.errors import DataError, ParameterError
from kinrank.measure.base import mean_of

LEVELS = ("none", "hard", "normal", "easy")
"""From no relevant document, where every ranking is alike, to many."""


@dataclass(frozen=True)
class LevelMean:
    """A measure over the queries of one level.

    Attributes
    ----------
    queries : int
        How many there are.
    mean : float
        The mean over those that the measure does not leave out; NaN where it leaves out all.
    """

    queries: int
    mean: float


def difficulty_levels(
    y: ArrayLike, offsets: ArrayLike, *, relevant_from: float = 1, hard_below: int = 4, easy_above: int = 20
) -> NDArray[np.str_]:
    """The level of each query.

    Parameters
    ----------
    y
        The grade of each row; rows of one query lie together.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    relevant_from
        The lowest grade that is relevant.
    hard_below, easy_above
        A query with fewer relevant documents than `hard_below` is hard, with more than `easy_above` easy, between
        normal; one with none is apart, as in the paper.

    Examples
    --------
    >>> difficulty_levels([1, 0, 1, 1, 0], [0, 2, 4, 5], hard_below=2, easy_above=2).tolist()
    ['hard', 'normal', 'none']
    """
    if not 0 < hard_below <= easy_above + 1:
        raise ParameterError(f"hard_below must lie from 1 to easy_above + 1, got {hard_below} with {easy_above}")
    grades, bounds = np.asarray(y, dtype=np.float64), np.asarray(offsets, dtype=np.int64)
    if grades.shape != (bounds[-1],):
        raise DataError(f"y must have one grade per row ({bounds[-1]}, by the offsets), got shape {grades.shape}")
    found = np.diff(np.concatenate(([0], np.cumsum(grades >= relevant_from)))[bounds])
    return np.select([found == 0, found < hard_below, found <= easy_above], LEVELS[:3], default=LEVELS[3])


def mean_by_level(values: ArrayLike, levels: ArrayLike) -> dict[str, LevelMean]:
    """The mean of a measure on the queries of each level; a level without queries is left out.

    Parameters
    ----------
    values
        One value per query.
    levels
        The level of each.

    Examples
    --------
    >>> mean_by_level([0.2, 0.4, 0.9], ["hard", "hard", "easy"])
    {'hard': LevelMean(queries=2, mean=0.3...), 'easy': LevelMean(queries=1, mean=0.9)}
    """
    measured, level = np.asarray(values, dtype=np.float64), np.asarray(levels)
    if measured.shape != level.shape:
        raise DataError(f"values and levels must be one per query, got shapes {measured.shape} and {level.shape}")
    return {
        name: LevelMean(int(np.count_nonzero(level == name)), mean_of(measured[level == name]))
        for name in LEVELS
        if np.any(level == name)
    }
