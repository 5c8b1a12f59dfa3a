"""Hypothesis strategy for small QuerySets, and their comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kinrank import QuerySet

WORDS = st.text(alphabet="abcXYZ019-_.:/é語", min_size=1, max_size=8)


@st.composite
def query_sets(draw: st.DrawFn, *, words: st.SearchStrategy[str] = WORDS, columns: bool = True) -> QuerySet:
    """Draw judged queries with rows in any order and text or number ids."""
    n_queries = draw(st.integers(1, 5))
    ids: list[Any] = draw(
        st.one_of(
            st.lists(st.integers(0, 10**12), min_size=n_queries, max_size=n_queries, unique=True),
            st.lists(words.filter(lambda w: not w.isdigit()), min_size=n_queries, max_size=n_queries, unique=True),
        )
    )
    rows = draw(
        st.permutations(sorted([*range(n_queries), *draw(st.lists(st.integers(0, n_queries - 1), max_size=9))]))
    )
    n_features = draw(st.integers(1, 4))
    values = st.floats(width=32, allow_nan=True, allow_infinity=False)
    X = draw(hnp.arrays(np.float32, (len(rows), n_features), elements=values))
    grades = st.integers(0, 4)
    if columns:  # formats that keep everything keep which rows are not judged
        grades |= st.just(np.nan)
    y = draw(hnp.arrays(np.float32, len(rows), elements=grades))
    doc_id = draw(st.none() | st.lists(words, min_size=len(rows), max_size=len(rows)))
    queries = QuerySet.from_arrays(X, y, qid=[ids[i] for i in rows], doc_id=doc_id)
    if columns and draw(st.booleans()):
        text = draw(
            st.lists(st.text(max_size=5).filter(lambda t: "\0" not in t), min_size=n_queries, max_size=n_queries)
        )
        length = np.arange(n_queries, dtype=np.int64)
        queries = queries.replace(query_columns={"text": np.array(text, dtype=np.str_), "length": length})
    return queries


def assert_same(a: QuerySet, b: QuerySet, *, names: bool = True) -> None:
    """Check that two sets are exactly equal, NaN included; `names` compares feature names and query columns too."""
    np.testing.assert_array_equal(a.X, b.X)
    assert a.X.dtype == b.X.dtype == np.float32
    np.testing.assert_array_equal(a.offsets, b.offsets)
    np.testing.assert_array_equal(a.qid, b.qid)
    assert a.qid.dtype.kind == b.qid.dtype.kind
    for left, right in ((a.y, b.y), (a.doc_id, b.doc_id)):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            np.testing.assert_array_equal(left, right)
    if names:
        assert a.feature_names == b.feature_names
        assert set(a.query_columns) == set(b.query_columns)
        for name, values in a.query_columns.items():
            np.testing.assert_array_equal(values, b.query_columns[name])
