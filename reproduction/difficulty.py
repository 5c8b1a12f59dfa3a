"""Difficulty of queries, by their number of relevant documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.errors import DataError, ParameterError
from kinrank.measure.base import mean_of

LEVELS = ("none", "hard", "normal", "easy")
"""From queries without relevant documents, for which any order scores the same, to queries with many."""


@dataclass(frozen=True)
class LevelMean:
    """The mean of a measure over the queries of one level."""

    queries: int
    """The number of queries."""
    mean: float
    """The mean over the queries that the measure does not exclude; NaN if it excludes all."""


def difficulty_levels(
    y: ArrayLike, offsets: ArrayLike, *, relevant_from: float = 1, hard_below: int = 4, easy_above: int = 20
) -> NDArray[np.str_]:
    """Return the difficulty level of each query.

    Parameters
    ----------
    y
        The grade of each row. The rows of a query are adjacent.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    relevant_from
        The lowest grade that is relevant.
    hard_below, easy_above
        A query with fewer relevant documents than `hard_below` is hard, one with more than `easy_above` is easy, any
        other is normal. Queries without relevant documents are a level of their own.

    Examples
    --------
    >>> difficulty_levels([1, 0, 1, 1, 0], [0, 2, 4, 5], hard_below=2, easy_above=2).tolist()
    ['hard', 'normal', 'none']
    """
    if not 0 < hard_below <= easy_above + 1:
        raise ParameterError(
            f"hard_below must be from 1 to easy_above + 1, got {hard_below} with easy_above={easy_above}"
        )
    grades, bounds = np.asarray(y, dtype=np.float64), np.asarray(offsets, dtype=np.int64)
    if grades.shape != (bounds[-1],):
        raise DataError(f"y must have one grade per row ({bounds[-1]} by the offsets), got shape {grades.shape}")
    found = np.diff(np.concatenate(([0], np.cumsum(grades >= relevant_from)))[bounds])
    return np.select([found == 0, found < hard_below, found <= easy_above], LEVELS[:3], default=LEVELS[3])


def mean_by_level(values: ArrayLike, levels: ArrayLike) -> dict[str, LevelMean]:
    """Return the mean of a measure for each level that has queries.

    Parameters
    ----------
    values
        One value per query.
    levels
        One level per query.

    Examples
    --------
    >>> mean_by_level([0.2, 0.4, 0.9], ["hard", "hard", "easy"])
    {'hard': LevelMean(queries=2, mean=0.3...), 'easy': LevelMean(queries=1, mean=0.9)}
    """
    measured, level = np.asarray(values, dtype=np.float64), np.asarray(levels)
    if measured.shape != level.shape:
        raise DataError(
            f"values and levels must have one entry per query, got shapes {measured.shape} and {level.shape}"
        )
    return {
        name: LevelMean(int(np.count_nonzero(level == name)), mean_of(measured[level == name]))
        for name in LEVELS
        if np.any(level == name)
    }
