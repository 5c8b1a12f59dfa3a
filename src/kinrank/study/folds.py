"""What is learned from and what is tested on: a test set of its own, or folds, behind the leak guard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_queries
from kinrank.errors import DataError
from kinrank.registry.choices import check_choice
from kinrank.study.leaks import LeakReport, find_leaks

OnLeak = Literal["refuse", "drop", "warn"]


@dataclass(frozen=True, eq=False)
class Fold:
    """Queries to learn from, queries to test on, and what the guard says of them.

    Attributes
    ----------
    train, test : QuerySet
        Nothing of `test` was seen in `train`, unless the guard was told to warn only.
    positions : int64 array
        Where the test queries lie in the set they were taken from.
    near : bool array
        Which of them have something very like them in `train`.
    leaks : LeakReport
        What the guard found before any were dropped.
    """

    train: QuerySet
    test: QuerySet
    positions: NDArray[np.int64]
    near: NDArray[np.bool_]
    leaks: LeakReport


def checked_folds(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    folds: int = 5,
    group: str | None = None,
    leaks: OnLeak = "refuse",
    seed: int = 0,
) -> Iterator[Fold]:
    """One fold where there is a test set, else as many as asked for, each query tested once.

    Parameters
    ----------
    queries
        Judged queries to learn from, or to cut into folds.
    test
        Judged queries to test on.
    folds, group, seed
        As in `kinrank.data.split.fold_queries`.
    leaks
        What becomes of test queries that were seen in training: an error, left out, or kept.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> [(len(fold.train), len(fold.test)) for fold in checked_folds(camps, folds=4)]
    [(15, 5), (15, 5), (15, 5), (15, 5)]
    """
    check_choice("leaks", leaks, ("refuse", "drop", "warn"))
    if test is not None:
        cut = [(queries, test, np.arange(len(test)))]
    else:
        parts = fold_queries(queries, folds, group=group, seed=seed)
        cut = [(train, asked, np.flatnonzero(np.isin(queries.qid, asked.qid))) for train, asked in parts]
    for train, asked, positions in cut:
        report = find_leaks(train, asked, group=group)
        if leaks == "refuse":
            report.raise_if_seen(train, asked)
        kept = np.arange(len(asked))
        if leaks == "drop":
            kept = np.delete(kept, report.seen_queries)
        if not len(kept):
            raise DataError("all test queries were seen in training: there is nothing left to test on")
        near = np.isin(kept, report.near_queries)
        yield Fold(train, asked if len(kept) == len(asked) else asked[kept], positions[kept], near, report)


@dataclass(frozen=True, eq=False)
class PooledQueries:
    """The test queries of all folds in the order of the set they were taken from, and where each fold's rows lie."""

    queries: QuerySet
    rows: list[NDArray[np.int64]]
    near: NDArray[np.bool_]

    @classmethod
    def of(cls, folds: list[Fold], source: QuerySet) -> PooledQueries:
        """Gather folds of `source`; all of it where there are none."""
        if not folds:
            return cls(source, [], np.zeros(len(source), dtype=np.bool_))
        positions = np.concatenate([fold.positions for fold in folds])
        order = np.argsort(positions)
        queries = source[positions[order]]
        places = [np.searchsorted(positions[order], fold.positions) for fold in folds]
        near = np.concatenate([fold.near for fold in folds])[order]
        return cls(queries, [queries.rows_of(place) for place in places], near)
