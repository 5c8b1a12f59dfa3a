"""Splits into training and test queries, checked for leaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_of_query, fold_queries, groups_of
from kinrank.errors import DataError
from kinrank.registry.choices import check_choice
from kinrank.study.leaks import LeakReport, find_leaks

OnLeak = Literal["refuse", "drop", "warn"]


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and test queries, and the leaks between them."""

    train: QuerySet
    test: QuerySet
    """No query of `test` was seen in `train`, unless leaks are kept."""
    positions: NDArray[np.int64]
    """Positions of the test queries in the original set."""
    near: NDArray[np.bool_]
    """Which test queries have a near-duplicate in `train`."""
    leaks: LeakReport
    """The leaks before any query was dropped."""


def checked_folds(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    folds: int = 5,
    group: str | None = None,
    together: str | None = None,
    leaks: OnLeak = "refuse",
    seed: int = 0,
) -> Iterator[Fold]:
    """Yield one fold for a given test set, or cross-validation folds.

    Parameters
    ----------
    queries
        Judged queries to train on, or to split into folds.
    test
        Judged test queries.
    folds, group, seed
        As in `kinrank.data.split.fold_queries`.
    together
        Query column to split by instead of `group`, whose values are never split either.
    leaks
        What to do with test queries seen in training: raise, drop them, or keep them.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> [(len(fold.train), len(fold.test)) for fold in checked_folds(camps, folds=4)]
    [(15, 5), (15, 5), (15, 5), (15, 5)]
    """
    check_choice("leaks", leaks, ("refuse", "drop", "warn"))
    if test is not None:
        splits = [(queries, test, np.arange(len(test)))]
    else:
        fold = fold_of_query(queries, folds, group=together or group, seed=seed)
        splits = [(queries[fold != i], queries[fold == i], np.flatnonzero(fold == i)) for i in range(folds)]
    for train, tested, positions in splits:
        report = find_leaks(train, tested, group=group)
        if leaks == "refuse":
            report.raise_if_seen(train, tested, how_to_drop=" with leaks='drop' (--leaks drop on the command line)")
        kept = np.arange(len(tested))
        if leaks == "drop":
            report.raise_if_added()  # the rows to drop are in all folds, and in what the caller pools
            kept = np.delete(kept, report.seen_queries)
        if not len(kept):
            raise DataError("all test queries were seen in training: no query is left to test on")
        near = np.isin(kept, report.near_queries)
        yield Fold(train, tested if len(kept) == len(tested) else tested[kept], positions[kept], near, report)


def inner_folds(
    train: QuerySet, folds: int = 5, *, group: str | None = None, seed: int = 0
) -> Iterator[tuple[QuerySet, QuerySet]]:
    """Split training queries into folds to choose settings on: `folds`, or as many as the groups allow.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> [len(held_out) for _, held_out in inner_folds(make_two_camps(n_queries=20, seed=0))]
    [4, 4, 4, 4, 4]
    """
    n_groups = len(np.unique(groups_of(train, group)))
    if n_groups < 2:
        raise DataError(
            f"cannot choose settings on folds of the training queries by {group or 'query'}: {len(train)} queries in "
            f"{n_groups} group cannot be split in two; use a finer group or fewer test queries"
        )
    return fold_queries(train, min(folds, n_groups), group=group, seed=seed)
