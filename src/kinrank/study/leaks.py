"""Find leaks: test queries that were seen in training, near-duplicates, and features that give the grade away."""

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
from kinrank.study.added_rows import AddedRows, find_added_rows
from kinrank.study.overlap import Items, item_set_digests, most_similar, relevant_as_items, rows_as_items

How = Literal["id", "group", "text", "rows", "words", "vector", "some rows", "relevant documents"]

TEXTS = ("text", "query")
"""Query columns with the text of a query; the first that exists is used."""
NEAR_COSINE = 0.95
NEAR_SHARE = 0.5
_BATCH = 4096  # vectors per side; their cosines take 64 MB
_LABELS = {
    "id": "same id",
    "group": "same group",
    "text": "same text",
    "rows": "same feature rows",
    "words": "same words",
    "vector": f"vector with cosine of at least {NEAR_COSINE}",
    "some rows": "at least half of the feature rows",
    "relevant documents": "at least half of the relevant documents",
}


@dataclass(frozen=True)
class Leak:
    """Positions of a test query and of a similar training query, and what they have in common."""

    test: int
    train: int
    how: How


@dataclass(frozen=True, eq=False)
class LeakReport:
    """Leaks between training and test queries."""

    n_test: int
    """Number of test queries."""
    seen: tuple[Leak, ...]
    """Test queries with the same id, group, text or rows as a training query."""
    near: tuple[Leak, ...]
    """Other test queries with a near-duplicate in training."""
    added: AddedRows | None = None
    """Training candidates that look like relevant documents added to the hits of an engine."""

    @property
    def seen_queries(self) -> NDArray[np.int64]:
        """Positions of the test queries that were seen in training."""
        return np.unique(np.array([leak.test for leak in self.seen], dtype=np.int64))

    @property
    def near_queries(self) -> NDArray[np.int64]:
        """Positions of the test queries with a near-duplicate in training."""
        return np.unique(np.array([leak.test for leak in self.near], dtype=np.int64))

    def raise_if_seen(self, train: QuerySet, test: QuerySet, *, how_to_drop: str = "") -> None:
        """Raise `LeakError` if test queries were seen in training, or if features give the grade away."""
        self.raise_if_added()
        if self.seen:
            first = self.seen[0]
            raise LeakError(
                f"{len(self.seen_queries):,} of {self.n_test:,} test queries were seen in training "
                f"({_counts(self.seen)}); for example, test query {test.qid[first.test].item()!r} is training query "
                f"{train.qid[first.train].item()!r}. Results on them do not carry over to new queries: split by a "
                f"group that keeps them together, or drop them{how_to_drop}"
            )

    def raise_if_added(self) -> None:
        """Raise `LeakError` if features give the grade away."""
        if self.added is not None:
            raise self.added.error()


def leak_warning(reports: Sequence[LeakReport]) -> str | None:
    """Return a warning about added candidates or near-duplicates in one or several folds; None if there are none."""
    added = next((report.added for report in reports if report.added is not None), None)
    if added is not None:
        return str(added)
    near = [leak for report in reports for leak in report.near]
    if not near:
        return None
    queries, tested = sum(len(report.near_queries) for report in reports), sum(report.n_test for report in reports)
    return (
        f"{queries:,} of {tested:,} test queries have a near-duplicate in training ({_counts(near)}): part of the gain "
        "may be memorization; split by group to keep near-duplicates together"
    )


def find_leaks(train: QuerySet, test: QuerySet, *, group: str | None = None) -> LeakReport:
    """Find test queries that were seen in training, near-duplicates, and features that give the grade away.

    Parameters
    ----------
    train, test
        Judged queries with the same features.
    group
        Query column whose values must not be in both sets.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> find_leaks(camps[:10], camps[10:]).seen
    ()
    >>> with_copy = QuerySet.concat([camps[10:], camps[3:4].replace(qid=np.array([99]))])
    >>> find_leaks(camps[:10], with_copy).seen
    (Leak(test=10, train=3, how='rows'),)
    """
    seen = [*_same("id", train.qid, test.qid)]
    if group is not None:
        seen += _same("group", groups_of(train, group), groups_of(test, group))
    near: list[Leak] = []
    train_texts, test_texts = _texts(train), _texts(test)
    if train_texts is not None and test_texts is not None:
        seen += _same("text", train_texts, test_texts)
        near += _same("words", _words(train_texts), _words(test_texts))
    rows = rows_as_items(train), rows_as_items(test)
    seen += _same("rows", *(item_set_digests(each, rows[0]) for each in rows))
    near += _overlapping("some rows", *rows, NEAR_SHARE, at_least=2)
    relevant = relevant_as_items(train), relevant_as_items(test)
    if relevant[0] is not None and relevant[1] is not None:
        near += _overlapping("relevant documents", relevant[0], relevant[1], NEAR_SHARE, at_least=1)
    if all(VECTORS in queries.query_columns for queries in (train, test)):
        near += _close(train.query_columns[VECTORS], test.query_columns[VECTORS])
    seen_tests = {leak.test for leak in seen}
    near = [leak for leak in near if leak.test not in seen_tests]
    return LeakReport(len(test), tuple(seen), tuple(near), find_added_rows(train))


def _same(how: How, train: Iterable[Any], test: Iterable[Any]) -> list[Leak]:
    """Return the queries with the same value in both sets, compared as text; empty values are ignored."""
    positions = {str(value): position for position, value in enumerate(train) if str(value)}
    return [
        Leak(position, positions[str(value)], how) for position, value in enumerate(test) if str(value) in positions
    ]


def _texts(queries: QuerySet) -> list[str] | None:
    """Return the texts of the queries without case, punctuation and extra spaces."""
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
    """Return the queries with a high cosine between their vectors."""
    leaks = []
    for start in range(0, len(test), _BATCH):
        batch = _unit(test[start : start + _BATCH])
        highest, nearest = np.full(len(batch), -np.inf, dtype=np.float32), np.zeros(len(batch), dtype=np.int64)
        for first in range(0, len(train), _BATCH):
            cosine = batch @ _unit(train[first : first + _BATCH]).T
            best = cosine.argmax(axis=1)
            cosines = cosine[np.arange(len(batch)), best]
            nearest = np.where(cosines > highest, first + best, nearest)
            highest = np.maximum(highest, cosines)
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
    return ", ".join(f"{_LABELS[how]}: {count:,}" for how, count in counts.items())
