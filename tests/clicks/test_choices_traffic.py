"""The baseline of the simulated month: evidence columns in time order."""

from __future__ import annotations

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np

from benchmarks.choices_traffic import drawn, measured, simulated_month, with_evidence
from kinrank import QuerySet
from kinrank.datasets import load_movies


def test_evidence_columns_learn_from_the_third_week_with_two_weeks_and_rank_with_three():
    movies = drawn(load_movies(), "60", seed=1)
    assert len(movies) == 60
    month = simulated_month(movies, "position", 1)
    columns = [month.stacked.feature_names.index(name) for name in ("looks", "choices", "rate")]
    asked = with_evidence(movies, month.evidence)
    place = {key: row for row, key in enumerate(cells(asked))}
    learned, later = month.stacked.X[:, columns], asked.X[[place[key] for key in cells(month.stacked)]][:, columns]
    assert 0 < learned[:, 0].sum() < 0.8 * later[:, 0].sum()
    assert (later[:, 1] >= learned[:, 1]).all()
    assert np.allclose(learned[:, 2], learned[:, 1] / (learned[:, 0] + 1), atol=1e-5)
    assert measured(movies, "movies", "position", 1, "LightGBM", "swaps")["NDCG@10"]["evidence columns"]["mean"] > 0.7


def cells(queries: QuerySet) -> list[tuple[str, str]]:
    """Return the query and document of each row."""
    assert queries.doc_id is not None
    return list(zip(queries.qid[queries.query_of_row].tolist(), queries.doc_id.tolist(), strict=True))
