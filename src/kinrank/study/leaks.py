"""The guard against leaks: test queries that were seen in training, or something very like them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.data.vectors import VECTORS
from kinrank.errors import LeakError
from kinrank.study.overlap import Items, item_set_digests, most_similar, relevant_as_items, rows_as_items

How = Literal["id", "group", "text", "rows", "words", "vector", "some rows", "relevant documents"]

TEXTS = ("text", "query")
"""Query columns that are read as the text of the query, the first that is there."""
NEAR_COSINE = 0.95
NEAR_SHARE = 0.5
_AT_ONCE = 4096  # vectors of either side: their cosines are 64 MB
_SAID = {
    "id": "the same id",
    "group": "of a group that is in training",
    "text": "the same text",
    "rows": "the same feature rows",
    "words": "the same words",
    "vector": f"a vector of cosine {NEAR_COSINE} or more",
    "some rows": "half of the feature rows or more",
    "relevant documents": "half of the relevant documents or more",
}


@dataclass(frozen=True)
class Leak:
    """A test query and the training query that gives it away, positions in their sets, and how they are alike."""

    test: int
    train: int
    how: How


@dataclass(frozen=True, eq=False)
class LeakReport:
    """What the guard found.

    Attributes
    ----------
    n_test : int
        Test queries looked at.
    seen : tuple of Leak
        Test queries that were seen in training: the same id, group, text, or rows.
    near : tuple of Leak
        Test queries that have something very like them in training, those of `seen` aside.
    """

    n_test: int
    seen: tuple[Leak, ...]
    near: tuple[Leak, ...]

    @property
    def seen_queries(self) -> NDArray[np.int64]:
        """Positions of the test queries that were seen."""
        return np.unique(np.array([leak.test for leak in self.seen], dtype=np.int64))

    @property
    def near_queries(self) -> NDArray[np.int64]:
        """Positions of the test queries that have something very like them in training."""
        return np.unique(np.array([leak.test for leak in self.near], dtype=np.int64))

    def raise_if_seen(self, train: QuerySet, test: QuerySet) -> None:
        """Raise where test queries were seen in training."""
        if self.seen:
            first = self.seen[0]
            raise LeakError(
                f"{len(self.seen_queries):,} of {self.n_test:,} test queries were seen in training "
                f"({_counts(self.seen)}); for example query {test.qid[first.test].item()!r} is query "
                f"{train.qid[first.train].item()!r} of training. What is measured on them says nothing about new "
                "queries: split by a group that keeps them together, or leave them out"
            )


def near_duplicate_warning(reports: Sequence[LeakReport]) -> str | None:
    """A sentence about the near-duplicates of one test set or of several folds; None where there are none."""
    near = [leak for report in reports for leak in report.near]
    if not near:
        return None
    queries, tested = sum(len(report.near_queries) for report in reports), sum(report.n_test for report in reports)
    return (
        f"{queries:,} of {tested:,} test queries have a near-duplicate in training ({_counts(near)}): part of the gain "
        "may be memorization; split by group to keep near-duplicates together"
    )


def find_leaks(train: QuerySet, test: QuerySet, *, group: str | None = None) -> LeakReport:
    """Look for test queries that were seen in training, and for near-duplicates.

    Parameters
    ----------
    train, test
        Judged queries with the same features.
    group
        The query column that must not be on both sides.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> find_leaks(camps[:10], camps[10:]).seen
    ()
    >>> planted = QuerySet.concat([camps[10:], camps[3:4].replace(qid=np.array([99]))])
    >>> find_leaks(camps[:10], planted).seen
    (Leak(test=10, train=3, how='rows'),)
    """
    seen = [*_same("id", train.qid, test.qid)]
    if group is not None:
        seen += _same("group", groups_of(train, group), groups_of(test, group))
    near: list[Leak] = []
    known, asked = _texts(train), _texts(test)
    if known is not None and asked is not None:
        seen += _same("text", known, asked)
        near += _same("words", _words(known), _words(asked))
    rows = rows_as_items(train), rows_as_items(test)
    seen += _same("rows", *(item_set_digests(each, rows[0]) for each in rows))
    near += _overlapping("some rows", *rows, NEAR_SHARE, at_least=2)
    relevant = relevant_as_items(train), relevant_as_items(test)
    if relevant[0] is not None and relevant[1] is not None:
        near += _overlapping("relevant documents", relevant[0], relevant[1], NEAR_SHARE, at_least=1)
    if all(VECTORS in queries.query_columns for queries in (train, test)):
        near += _close(train.query_columns[VECTORS], test.query_columns[VECTORS])
    caught = {leak.test for leak in seen}
    return LeakReport(len(test), tuple(seen), tuple(leak for leak in near if leak.test not in caught))


def _same(how: How, train: Iterable[Any], test: Iterable[Any]) -> list[Leak]:
    """Queries that have the same value on both sides; ids are compared as text, an empty value is none."""
    place = {str(value): position for position, value in enumerate(train) if str(value)}
    return [Leak(position, place[str(value)], how) for position, value in enumerate(test) if str(value) in place]


def _texts(queries: QuerySet) -> list[str] | None:
    """The texts of the queries without case, punctuation and extra blanks."""
    column = next((queries.query_columns[name] for name in TEXTS if name in queries.query_columns), None)
    if column is None or column.dtype.kind != "U":
        return None
    return [" ".join(re.findall(r"\w+", text.casefold())) for text in column.tolist()]


def _words(texts: list[str]) -> list[str]:
    return [" ".join(sorted(set(text.split()))) for text in texts]


def _overlapping(how: How, train: Items, test: Items, share: float, *, at_least: int) -> list[Leak]:
    position, found, count = most_similar(test, train)
    enough = np.flatnonzero((found >= share) & (count >= at_least))
    return [Leak(int(query), int(position[query]), how) for query in enough]


def _close(train: NDArray[Any], test: NDArray[Any]) -> list[Leak]:
    """Queries whose vectors point the same way."""
    leaks = []
    for start in range(0, len(test), _AT_ONCE):
        asked = _unit(test[start : start + _AT_ONCE])
        highest, nearest = np.full(len(asked), -np.inf, dtype=np.float32), np.zeros(len(asked), dtype=np.int64)
        for first in range(0, len(train), _AT_ONCE):
            cosine = asked @ _unit(train[first : first + _AT_ONCE]).T
            best = cosine.argmax(axis=1)
            reached = cosine[np.arange(len(asked)), best]
            nearest = np.where(reached > highest, first + best, nearest)
            highest = np.maximum(highest, reached)
        close = np.flatnonzero(highest >= NEAR_COSINE)
        leaks += [Leak(start + int(q), int(nearest[q]), "vector") for q in close]
    return leaks


def _unit(vectors: NDArray[Any]) -> Float32:
    values = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Float32 = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
    return unit


def _counts(leaks: Iterable[Leak]) -> str:
    counts = Counter(leak.how for leak in leaks)
    return ", ".join(f"{_SAID[how]}: {count:,}" for how, count in counts.items())
