from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank.clicks import judgments
from kinrank.clicks._counts import ClickCounts, Funnel, collect_cells
from kinrank.clicks.examination import estimate_examination
from tests.clicks.conftest import Simulate

ROWS = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "b", 1), (1, "b", 3), (1, "c", 2), (3, "c", 1)]


def collected(batch_size: int) -> ClickCounts:
    """Return the counts of `ROWS`, after two cells of dropped impressions, in batches of a size."""
    code, document, rank = zip(*ROWS, strict=True)
    numbers = np.arange(len(ROWS) + 2, dtype=np.int32)
    names = ("impressions", "clicks", "even_impressions", "even_clicks", "odd_impressions", "odd_clicks")
    table = pa.table(
        {
            "code": [None, None, *code],
            "document": [None, None, *document],
            "rank": pa.array([None, None, *rank], pa.int32()),
            "reason": ["client is a bot", "no query text", *[None] * len(ROWS)],
            **{name: numbers + place for place, name in enumerate(names)},
        }
    )
    return collect_cells(table.to_batches(batch_size), pa.array(["x", "y", "unused", "z"]), Funnel())


@settings(max_examples=10)
@given(st.integers(1, 10))
def test_the_size_of_batches_does_not_matter(batch_size: int):
    counts = collected(batch_size)
    assert counts.query.to_pylist() == ["x", "x", "y", "y", "z"]
    assert counts.document.to_pylist() == ["a", "b", "b", "c", "c"]
    assert counts.offsets.tolist() == [0, 2, 3, 5, 6, 7]
    assert counts.query_offsets.tolist() == [0, 2, 4, 5]
    assert counts.rank.tolist() == [rank for _, _, rank in ROWS]
    assert counts.impressions.tolist() == list(range(2, 9))
    assert counts.funnel.dropped == {("impressions", "no query text"): 1}
    assert counts.funnel.kept("impressions") == sum(range(2, 9))


def test_threads_do_not_change_the_result(simulate: Simulate, monkeypatch: pytest.MonkeyPatch):
    counts = simulate()
    examination = estimate_examination(counts)
    whole = judgments.estimate_attractiveness(counts, examination)
    monkeypatch.setattr(judgments, "_PAIRS", 1000)
    in_parts = judgments.estimate_attractiveness(counts, examination)
    for name in ("mean", "low", "high", "weight"):
        assert np.array_equal(getattr(whole, name), getattr(in_parts, name))
