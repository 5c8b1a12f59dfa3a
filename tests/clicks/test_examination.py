from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank.clicks import read_clicks
from kinrank.clicks.examination import MODELS, bootstrap, connected_ranks, estimate_examination, jackknife
from kinrank.clicks.judgments import estimate_attractiveness
from kinrank.datasets import make_two_camps, simulate_clicks
from kinrank.errors import DataError, ParameterError
from tests.clicks.conftest import Simulate


def test_swaps_recover_the_curve(simulate: Simulate):
    found = estimate_examination(simulate(severity=1.0), "swaps")
    truth = 1 / found.ranks
    assert found.slope == pytest.approx(truth, rel=0.08)
    assert np.all((found.low <= truth) & (truth <= found.high))
    assert found.verdict.startswith("Identifiable for 5 of 5 ranks")
    assert found.warnings == ()


def test_a_frozen_ranking_is_refused(simulate: Simulate):
    counts = simulate(shuffle=0.0)
    for model in ("swaps", "trust"):
        with pytest.raises(DataError, match=r"Not identifiable: 0% of the impressions.*none or cascade"):
            estimate_examination(counts, model)
    assert estimate_examination(counts, "none").slope.tolist() == [1.0] * 5


def test_lists_that_explored_tell_how_ranks_are_examined(tmp_path: Path):
    """Nothing else changes the order here."""
    queries = make_two_camps(n_queries=200, n_docs=8)
    settings = {"tail": 0.0, "depth": 4}
    frozen = simulate_clicks(queries, queries.X[:, 0], n_lists=60, shuffle=0.0, **settings)
    drawn = simulate_clicks(queries, queries.X[:, 0], n_lists=40, shuffle=1.0, seed=1, **settings)
    sessions = pa.array(drawn["session"].to_numpy() + frozen["session"].to_numpy().max() + 1)
    drawn = drawn.set_column(1, "session", sessions).append_column("explored", pa.array([0.2] * len(drawn)))
    files = [tmp_path / "frozen.parquet", tmp_path / "explored.parquet"]
    for file, rows in zip(files, (frozen, drawn), strict=True):
        pq.write_table(rows, file)
    with pytest.raises(DataError, match="Not identifiable"):
        estimate_examination(read_clicks(files[:1]))
    counts = read_clicks(files)
    assert counts.funnel.notes == ["lists that explored, and so tell how ranks are examined: 8,000"]
    assert estimate_examination(counts).slope == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.15)


@pytest.mark.parametrize("user", ["cascade", "trust"])
def test_a_model_that_does_not_fit_is_flagged(simulate: Simulate, user: str):
    found = estimate_examination(simulate(user=user, n_lists=200), "swaps")
    assert "The position-based model does not fit" in found.warnings[0]
    assert not found.fits


def test_trust_bias_is_corrected(simulate: Simulate):
    found = estimate_examination(simulate(user="trust", n_lists=250), "trust")
    assert found.fits
    # Agarwal et al.: P(click at k) = (1 / k) (plus_k α + minus_k (1 - α)), here relative to the first rank
    rank = found.ranks
    plus, minus = 1 - (rank + 1) / 100, 0.65 / rank
    slope = (plus - minus) / rank
    offset = minus / rank - minus[0] * slope / slope[0]
    assert found.slope == pytest.approx(slope / slope[0], rel=0.25)
    assert found.offset == pytest.approx(offset, abs=0.1)


def test_the_cascade_uses_what_was_examined(simulate: Simulate):
    counts = simulate(user="cascade", cascade=True)
    found = estimate_attractiveness(counts, estimate_examination(counts, "cascade"))
    examined = counts.by_pair(counts.examined)
    often = examined > 100
    rate = counts.by_pair(counts.clicks)[often] / examined[often]
    assert found.mean[often] == pytest.approx(rate, abs=0.1)
    assert counts.examined.sum() < counts.impressions.sum()


def test_unknown_models_are_refused(simulate: Simulate):
    with pytest.raises(ParameterError, match="choose one of " + ", ".join(MODELS)):
        estimate_examination(simulate(), "dbn")


def won(*wins: tuple[int, int, float], n_ranks: int = 3) -> np.ndarray:
    table = np.zeros((n_ranks, n_ranks))
    for rank, other, clicks in wins:
        table[rank, other] = clicks
    return table


def test_a_rank_without_clicks_of_its_own_is_not_known():
    # Rank 3 is compared with rank 1 often enough, but its documents were clicked at rank 1 only: its strength is 0.
    both_ways = [(0, 1, 60.0), (1, 0, 30.0)]
    assert connected_ranks(won(*both_ways, (0, 2, 20.0))).tolist() == [0, 1]
    assert connected_ranks(won(*both_ways, (0, 2, 20.0), (2, 0, 1.0))).tolist() == [0, 1, 2]
    # Rank 3 never loses: its strength would be infinite.
    assert connected_ranks(won(*both_ways, (2, 0, 20.0))).tolist() == [0, 1]
    # A cycle is enough: each rank wins against the next.
    assert connected_ranks(won((0, 1, 20.0), (1, 2, 20.0), (2, 0, 20.0))).tolist() == [0, 1, 2]


def test_strengths_of_the_known_ranks_are_finite_in_every_draw():
    rng = np.random.default_rng(0)
    groups = rng.poisson(0.4, (40, 4, 4)).astype(np.float64)
    known = connected_ranks(groups.sum(axis=0))
    drawn = bootstrap(groups[:, known][:, :, known])
    assert drawn.shape == (40, 4)
    assert np.all((drawn > 1e-3) & (drawn < 1e3))
    assert np.all(drawn[:, 0] == 1)
    _, deviation = jackknife(groups)
    assert np.log(drawn).std(axis=0)[1:] == pytest.approx(deviation[1:], rel=0.5)


def test_weak_instruments_are_refused(simulate: Simulate):
    # The instrument is a document's click rate on other days. If all documents attract alike, it says nothing.
    counts = simulate(user="trust", n_lists=60, attraction=(0.5, 0.5))
    with pytest.raises(DataError, match=r"clicks on other days say too little.*F = .*, below 10\): the model trust"):
        estimate_examination(counts, "trust")
    assert "too few clicks, or only one day, to test" in estimate_examination(counts, "swaps").warnings[0]
