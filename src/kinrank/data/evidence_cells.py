"""Cells of evidence that belong to given queries: those before a day, and those of human judgments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64
from kinrank.data.evidence import CELLS, JUDGED, Evidence
from kinrank.data.evidence_keys import keys_of
from kinrank.data.queryset import QuerySet


def evidence_before(evidence: Evidence, queries: QuerySet, day: int) -> Evidence:
    """Return the evidence of queries before a day, in memory, without judgments and what has no day.

    Parameters
    ----------
    evidence
        All evidence; only the cells of these queries are read.
    queries
        The queries, with texts.
    day
        The first day that is left out, in days since 1970.

    Examples
    --------
    >>> cells = ["alien", "alien", "heat"], ["d7", "d7", "d7"], [3, 4, 5], [2, 0, 1]
    >>> evidence = Evidence.from_cells(*cells, day=[10, 11, 10])
    >>> asked = {"qid": [1], "doc_id": ["d7"], "query_columns": {"text": ["Alien"]}}
    >>> early = evidence_before(evidence, QuerySet.from_arrays([[1.0]], **asked), 11)
    >>> early, early.get_state()["looks"].tolist()
    (Evidence(1 queries, 1 cells), [3.0])
    """
    places, cells = _cells_of(evidence, queries)
    state = evidence.get_state()
    dated = (state["day"][cells] >= 0) & (state["day"][cells] < day)
    query, cells = state["query"][places[dated]], cells[dated]
    document, days, looks, choices, few = (state[name][cells] for name in CELLS)
    early = Evidence.from_hashes(query, document, looks, choices, days, few)
    meta = {name: value for name, value in evidence.meta.items() if name != "days"}
    return Evidence(early.get_state(), meta)


def judged_in(evidence: Evidence, queries: QuerySet) -> NDArray[np.bool_]:
    """Return which queries have human judgments among their evidence.

    Examples
    --------
    >>> asked = {"qid": [1, 2], "doc_id": ["d7", "d9"], "query_columns": {"text": ["alien", "heat"]}}
    >>> queries = QuerySet.from_arrays([[1.0], [2.0]], [3, 0], **asked)
    >>> judged_in(Evidence.of_judgments(queries[:1]), queries).tolist()
    [True, False]
    """
    keys = keys_of(queries)
    if keys is None:
        return np.zeros(len(queries), dtype=np.bool_)
    places, cells = _cells_of(evidence, queries)
    state = evidence.get_state()
    return np.isin(keys, state["query"][places[state["day"][cells] == JUDGED]])


def _cells_of(evidence: Evidence, queries: QuerySet) -> tuple[Int64, Int64]:
    """Return the cells of queries, and the position of the query of each in the evidence."""
    state, keys = evidence.get_state(), keys_of(queries)
    if keys is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    keys = np.unique(keys)
    found = np.searchsorted(state["query"], keys)
    found = found[found < evidence.n_queries]
    places = found[np.isin(state["query"][found], keys)]
    starts, sizes = state["offsets"][places], np.diff(state["offsets"])[places]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(places, sizes), np.repeat(starts, sizes) + within
