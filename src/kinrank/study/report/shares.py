"""Share of each feature in a ranking, and kinds of queries: given by a column, or with similar shares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError

LETTERS = "ABCDEF"
"""Short names of kinds."""

_MIN_MEMBERS = 50  # average size of a group, so that its mean is worth showing


@dataclass(frozen=True, eq=False)
class Kind:
    """A group of queries that are ranked by similar features."""

    letter: str
    """Name of the group."""
    members: NDArray[np.int64]
    """The queries, most typical first."""
    shares: Float64
    """Mean shares of its queries; see `feature_shares`; shape (features,)."""
    name: str = ""
    """The words or the value of a column that its queries have in common; empty if there are none."""

    @property
    def label(self) -> str:
        """Letter and name."""
        return kind_label(self.letter, self.name)


def kind_label(letter: str, name: str) -> str:
    """Return the letter and the name of a kind.

    Examples
    --------
    >>> kind_label("A", "movie, with"), kind_label("B", "")
    ('A: movie, with', 'Kind B')
    """
    return f"{letter}: {name}" if name else f"Kind {letter}"


def feature_shares(weights: Float64, queries: QuerySet) -> Float64:
    """Return how much each feature decides a ranking, as signed shares whose absolute values sum to 1.

    A share is the weight of a feature times its typical spread among the candidates of a query. Weights alone cannot
    be compared between features with different units. The spread is the root of the mean variance within queries;
    missing values are ignored.

    Parameters
    ----------
    weights
        One weight vector per query, or a single one.
    queries
        Queries whose candidates define the spread.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0, 0.0], [2.0, 20.0]], qid=[1, 1])
    >>> feature_shares(np.array([3.0, -0.1]), queries).tolist()
    [0.75, -0.25]
    """
    effects = weights * _spread_within(queries)
    totals = np.abs(effects).sum(axis=-1, keepdims=True)
    shares: Float64 = np.divide(effects, totals, out=np.zeros_like(effects), where=totals > 0)
    return shares


def _spread_within(queries: QuerySet) -> Float64:
    X = queries.X.astype(np.float64)
    known = np.isfinite(X)
    filled = np.where(known, X, 0.0)
    starts = queries.offsets[:-1]
    counts = np.maximum(np.add.reduceat(known, starts, axis=0, dtype=np.float64), 1.0)
    means = np.add.reduceat(filled, starts, axis=0) / counts
    deviations = np.where(known, X - np.repeat(means, queries.sizes, axis=0), 0.0)
    spread: Float64 = np.sqrt((deviations**2).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return spread


def group_by_shares(shares: Float64, seed: int = 0) -> list[Kind]:
    """Group queries by their feature shares into at most six groups, the largest first.

    Examples
    --------
    >>> kinds = group_by_shares(np.array([[1.0, 0.0], [0.9, 0.1], [1.0, 0.0], [0.0, 1.0]]))
    >>> [(kind.letter, sorted(kind.members.tolist())) for kind in kinds]
    [('A', [0, 1, 2]), ('B', [3])]
    """
    from sklearn.cluster import KMeans

    n = min(len(LETTERS), max(2, len(shares) // _MIN_MEMBERS), len(np.unique(shares, axis=0)))
    found = KMeans(n, n_init=4, random_state=seed).fit(shares)
    distances = np.linalg.norm(shares - found.cluster_centers_[found.labels_], axis=1)
    order = np.argsort(distances, kind="stable")
    groups = sorted((order[found.labels_[order] == label] for label in range(n)), key=len, reverse=True)
    return [Kind(LETTERS[i], members, shares[members].mean(axis=0)) for i, members in enumerate(groups)]


_WORD = re.compile(r"[^\W\d_]{2,}")
_MAX_WORDS = 3
_MIN_QUERIES = 3  # with a word, so that a single query does not name its kind
_MIN_LEAD = 0.1  # share of the queries by which a word of the name is more frequent than in other kinds
_MIN_RATIO = 2.0  # and how many times; frequent words everywhere, such as "the", name nothing
_OTHER = "other"


def groups_by_column(queries: QuerySet, column: str) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the queries by value of a column, the largest group first; rare values are "other".

    Numbers are named with the column: "movie 39".

    Parameters
    ----------
    queries
        The queries.
    column
        Query column with the kind of each query.

    Examples
    --------
    >>> intent = ["title", "title", "actor"]
    >>> queries = QuerySet.from_arrays([[0.0]] * 3, qid=[1, 2, 3], query_columns={"intent": intent})
    >>> {value: members.tolist() for value, members in groups_by_column(queries, "intent").items()}
    {'title': [0, 1], 'actor': [2]}
    """
    values = queries.query_columns.get(column)
    if values is None or values.ndim != 1:
        known = ", ".join(repr(name) for name, each in queries.query_columns.items() if each.ndim == 1) or "none"
        raise ParameterError(f"no query column {column!r} to group queries by; query columns: {known}")
    prefix = f"{column} " if values.dtype.kind in "iuf" else ""
    texts = [f"{prefix}{value}" or "none" for value in values.tolist()]
    common = [value for value, _ in Counter(texts).most_common()]
    if len(common) > len(LETTERS):
        kept = set(common[: len(LETTERS) - 1])
        texts = [value if value in kept else _OTHER for value in texts]
        common = [*(value for value in common if value in kept and value != _OTHER), _OTHER]
    found = np.array(texts)
    return {value: np.flatnonzero(found == value) for value in common}


def kinds_of_groups(
    groups: Mapping[str, NDArray[np.int64]], shown: NDArray[np.int64], by_query: Float64, overall: Float64
) -> list[Kind]:
    """Return the given groups as kinds, with the mean shares of their queries among those that are shown."""
    kinds = []
    for letter, (value, positions) in zip(LETTERS, groups.items(), strict=False):
        members = np.flatnonzero(np.isin(shown, positions))
        shares = by_query[members].mean(axis=0) if len(members) else overall
        typical = np.argsort(np.linalg.norm(by_query[members] - shares, axis=1), kind="stable")
        kinds.append(Kind(letter, members[typical], shares, value))
    return kinds


def names_by_words(groups: Sequence[Sequence[str]]) -> list[str]:
    """Name each group of texts by the words that are more frequent in it than in the others; "" if there are none.

    Examples
    --------
    >>> names_by_words([["movie with tom hanks", "movie with a dog", "a movie with rain"], ["alien", "heat", "up"]])
    ['movie, with', '']
    """
    used = [Counter(word for text in texts for word in set(_WORD.findall(text.lower()))) for texts in groups]
    total: Counter[str] = sum(used, Counter())
    n_texts = sum(map(len, groups))
    names = []
    for texts, counts in zip(groups, used, strict=True):
        others = max(n_texts - len(texts), 1)
        leads = {}
        for word, count in counts.items():
            here, elsewhere = count / len(texts), (total[word] - count) / others
            if count >= _MIN_QUERIES and here >= _MIN_RATIO * elsewhere and here - elsewhere >= _MIN_LEAD:
                leads[word] = here - elsewhere
        names.append(", ".join(sorted(leads, key=lambda word: (-leads[word], word))[:_MAX_WORDS]))
    return names
