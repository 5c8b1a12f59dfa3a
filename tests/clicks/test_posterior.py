from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from kinrank.clicks._counts import ClickCounts, Funnel, collect_cells
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.judgments import THRESHOLDS, estimate_attractiveness, grade_counts, judgment_table, write_judgments
from kinrank.engines._logger import read_judgments
from kinrank.errors import ParameterError
from tests.clicks.conftest import Simulate


def counts_of(cells: list[tuple[str, int, float, float]]) -> ClickCounts:
    """Return counts of one query from (document, rank, impressions, clicks)."""
    document, rank, shown, clicks = zip(*cells, strict=True)
    zeros = [0] * len(cells)
    table = pa.table(
        {
            "code": zeros, "document": document, "rank": rank, "reason": pa.nulls(len(cells), pa.string()),
            "impressions": shown, "clicks": clicks, "even_impressions": zeros, "even_clicks": zeros,
            "odd_impressions": zeros, "odd_clicks": zeros,
        }
    )  # fmt: skip
    return collect_cells(table.to_batches(), pa.array(["q"]), Funnel())


def curve(*slope: float) -> Examination:
    ranks, slopes = np.arange(1, len(slope) + 1), np.array(slope)
    return Examination("swaps", ranks, slopes, np.zeros(len(slope)), slopes, slopes, "")


def test_equal_attractiveness_ties_in_expectation_whatever_the_exposure():
    # Half of the documents have 300 looks, half 1.5: the same attractiveness, and the same mean of the rate. Others,
    # shown most and clicked least, pull a mean over impressions, and a shrunken estimate, away.
    rng, n = np.random.default_rng(0), 4_000
    clicks = {"often": rng.binomial(300, 0.4, n), "seldom": rng.binomial(6, 0.25 * 0.4, n)}
    cells = [(f"often {i}", 1, 300, clicks["often"][i]) for i in range(n)]
    cells += [(f"seldom {i}", 2, 6, clicks["seldom"][i]) for i in range(n)]
    cells += [(f"zero {i}", 1, 3_000, rng.binomial(3_000, 0.01)) for i in range(n // 4)]
    counts = counts_of(sorted(cells))
    found = estimate_attractiveness(counts, curve(1.0, 0.25))
    kind = np.array([name.partition(" ")[0] for name in counts.document.to_pylist()])
    often, seldom = found.rate[kind == "often"], found.rate[kind == "seldom"]
    error = np.hypot(often.std(), seldom.std()) / np.sqrt(n)
    assert often.mean() - seldom.mean() == pytest.approx(0.0, abs=3 * error)
    assert error < 0.01
    # The weight does not depend on the clicks: weighed by it, the rates stay unbiased.
    assert np.ptp(found.weight[kind == "seldom"]) == 0
    assert found.weight[kind == "seldom"][0] == pytest.approx(1.5 / 21.5)


def test_the_prior_is_the_mean_over_documents_and_not_over_impressions():
    counts = counts_of([("a", 1, 9_000, 9_000), ("b", 1, 10, 0), ("c", 1, 10, 0), ("d", 2, 1, 0)])
    found = estimate_attractiveness(counts, curve(1.0, 0.5))
    assert found.prior_mean == pytest.approx(1 / 3.5)  # three documents, and one with half a look


def test_100_of_100_does_not_outrank_9000_of_10000():
    others = [(f"other {i:02}", 1, 2_000, 200) for i in range(50)]
    counts = counts_of([("few", 1, 100, 100), ("many", 1, 10_000, 9_000), *others])
    found = estimate_attractiveness(counts, curve(1.0))
    assert found.mean[0] < found.mean[1]
    assert found.low[0] < found.low[1]
    assert found.weight[0] < found.weight[1]


@settings(max_examples=20)
@given(st.integers(1, 1000), st.data())
def test_without_correction_the_posterior_is_exact(shown: int, data: st.DataObject):
    clicks = data.draw(st.integers(0, shown))
    counts = counts_of([("a", 1, shown, clicks), ("b", 1, 50, 10)])
    found = estimate_attractiveness(counts, curve(1.0), strength=10)
    a, b = 10 * found.prior_mean, 10 * (1 - found.prior_mean)
    exact = beta(a + clicks, b + shown - clicks)
    assert found.mean[0] == pytest.approx(exact.mean(), abs=1e-6)
    assert found.low[0] == pytest.approx(exact.ppf(0.05), abs=1e-6)
    assert found.high[0] == pytest.approx(exact.ppf(0.95), abs=1e-6)


def test_a_click_at_a_rank_that_is_seldom_examined_counts_more():
    counts = counts_of([("high", 1, 100, 20), ("low", 2, 100, 20)])
    found = estimate_attractiveness(counts, curve(1.0, 0.25))
    assert found.mean[1] > 2 * found.mean[0]
    assert found.weight[1] < found.weight[0]


def test_the_mean_is_the_mode_of_the_likelihood_times_the_prior():
    counts = counts_of([("a", 1, 40, 9), ("a", 2, 60, 5)])
    found = estimate_attractiveness(counts, curve(1.0, 0.4), strength=10)
    alpha = np.linspace(1e-4, 1 - 1e-4, 200_001)
    a, b = 10 * found.prior_mean, 10 * (1 - found.prior_mean)
    value = a * np.log(alpha) + b * np.log1p(-alpha)
    for slope, shown, clicks in ((1.0, 40, 9), (0.4, 60, 5)):
        value += clicks * np.log(slope * alpha) + (shown - clicks) * np.log1p(-slope * alpha)
    assert found.mean[0] == pytest.approx(alpha[np.argmax(value)], abs=1e-4)


def test_impressions_at_unknown_ranks_are_not_used():
    counts = counts_of([("a", 1, 40, 9), ("a", 3, 60, 60)])
    alone = counts_of([("a", 1, 40, 9)])
    assert estimate_attractiveness(counts, curve(1.0, 0.4)).mean == pytest.approx(
        estimate_attractiveness(alone, curve(1.0)).mean
    )


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_judgments_are_read_back(simulate: Simulate, tmp_path: Path, suffix: str):
    counts = simulate()
    found = estimate_attractiveness(counts, estimate_examination(counts))
    table = judgment_table(counts, found)
    write_judgments(table, tmp_path / f"judgments.{suffix}")
    judged = read_judgments(tmp_path / f"judgments.{suffix}")
    assert len(judged) == 300
    assert judged.n_rows == counts.n_pairs == len(table)
    assert 0 < judged.row_weights.min() < judged.row_weights.max() < 1
    assert sum(grade_counts(table).values()) == len(table)
    assert set(np.unique(judged.grades)) == set(grade_counts(table))


def test_few_looks_are_discounted_once_by_the_weight_and_not_by_the_grade():
    counts = counts_of([("few", 1, 10, 9), ("many", 1, 1_000, 900), ("none", 1, 1_000, 0)])
    found = estimate_attractiveness(counts, curve(1.0))
    table = judgment_table(counts, found)
    assert table["y"].to_pylist() == [1, 1, 0]
    assert table["sample_weight"].to_pylist() == pytest.approx([10 / 30, 1_000 / 1_020, 1_000 / 1_020])
    assert found.mean[0] < found.mean[1]


def test_a_document_of_mean_attractiveness_is_below_the_first_grade():
    assert min(THRESHOLDS) > 1
    counts = counts_of([("a", 1, 100, 30), ("b", 1, 100, 30), ("c", 1, 100, 30)])
    assert set(judgment_table(counts, estimate_attractiveness(counts, curve(1.0)))["y"].to_pylist()) == {0}


def test_thresholds_are_relative_to_the_mean_of_the_log():
    counts = counts_of([("a", 1, 10_000, 1_000), ("b", 1, 10_000, 2_000), ("c", 1, 10_000, 6_000)])
    found = estimate_attractiveness(counts, curve(1.0))
    assert found.prior_mean == pytest.approx(0.3)
    assert judgment_table(counts, found, [0.5, 1.5])["y"].to_pylist() == [0, 1, 2]
    assert judgment_table(counts, found)["info.rate"].to_pylist() == pytest.approx([0.1, 0.2, 0.6])
    with pytest.raises(ParameterError, match="must be positive and ascend"):
        judgment_table(counts, found, [1.5, 1.0])
    with pytest.raises(ParameterError, match=r"NAME.parquet or NAME.csv"):
        write_judgments(judgment_table(counts, found), "judgments.xlsx")


def test_intervals_cover_documents_whose_examination_is_uncertain():
    # Documents with many impressions at rank 2, whose examination, 0.5, was estimated with an error of 15%.
    rng, covered, certain = np.random.default_rng(1), [], []
    for _ in range(200):
        alpha = rng.uniform(0.2, 0.6, 5)
        cells = [(f"d{i}", 2, 4_000, int(rng.binomial(4_000, 0.5 * alpha[i]))) for i in range(5)]
        slope = 0.5 * np.exp(0.15 * rng.standard_normal())
        drawn = np.ones((40, 2, 2)) * np.array([[[1.0, slope], [0.0, 0.0]]])
        drawn[:, 0, 1] *= np.exp(0.15 * rng.standard_normal(40))
        for examination, results in ((replace(curve(1.0, slope), drawn=drawn), covered), (curve(1.0, slope), certain)):
            found = estimate_attractiveness(counts_of(cells), examination)
            results.append(np.mean((found.low <= alpha) & (alpha <= found.high)))
    # The five documents of a log share the error of the curve: 200 logs, not 1,000 documents, are independent.
    assert np.mean(covered) == pytest.approx(0.9, abs=3 * np.std(covered) / np.sqrt(200) + 0.02)
    assert np.mean(certain) < 0.4
