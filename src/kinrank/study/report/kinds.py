"""Kinds of queries: groups given by a column, and names for groups that were found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.study.report.shares import LETTERS, Kind

_WORD = re.compile(r"[^\W\d_]{2,}")
_MAX_WORDS = 3
_MIN_QUERIES = 3  # with a word, so that a single query does not name its kind
_MIN_LEAD = 0.1  # share of the queries by which a word of the name is more frequent than in other kinds
_MIN_RATIO = 2.0  # and how many times; frequent words everywhere, such as "the", name nothing
_OTHER = "other"


def groups_by_column(queries: QuerySet, column: str) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the queries by value of a column, the largest group first; rare values are "other".

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
    texts = [str(value) or "none" for value in values.tolist()]
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
