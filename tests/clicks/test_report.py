from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from kinrank import QuerySet
from kinrank.clicks import read_clicks
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import THRESHOLDS, estimate_attractiveness, judgment_table
from kinrank.clicks.report import measure_quality, write_click_report
from kinrank.datasets import make_two_camps
from tests.clicks.conftest import Simulate


def people() -> QuerySet:
    """Return the true grades of the simulated queries."""
    queries = make_two_camps(n_queries=300, n_docs=15)
    texts = np.array([f" {qid} " for qid in queries.qid])
    return queries.replace(doc_id=queries.doc_id.astype(str), query_columns={"text": texts})


def test_evidence_prefers_the_true_model(simulate: Simulate):
    counts = simulate(n_lists=200)
    examination = estimate_examination(counts)
    found = estimate_attractiveness(counts, examination)
    quality = measure_quality(counts, examination, found, people())
    assert quality.perplexity is not None
    assert quality.perplexity["swaps"] == min(quality.perplexity.values())
    assert quality.stability is not None
    assert quality.stability[0] > 0.7
    assert quality.agreement is not None
    shares, pairs = quality.agreement
    assert pairs > 1000
    assert shares["corrected"] > shares["click rate"] > shares["mean rank"]
    assert sum(row.queries for row in quality.coverage) == 300


def test_later_clicks_are_predicted_by_the_model_of_trust(simulate: Simulate):
    counts = simulate(user="trust", n_lists=250)
    examination = estimate_examination(counts, "trust")
    quality = measure_quality(counts, examination, estimate_attractiveness(counts, examination))
    assert quality.perplexity is not None
    assert quality.perplexity["trust"] == min(quality.perplexity.values())
    assert quality.stability is None  # the model needs days to compare, which half of the days do not have


def test_human_judgments_match_in_any_unicode_form(tmp_path: Path):
    file = tmp_path / "log.csv"
    rows = "".join(
        f"am\u00e9lie,s{i},{document},1,{clicked}\n" for i in range(30) for document, clicked in ("a1", "b0")
    )
    file.write_text("query,session,document,rank,clicked\n" + rows, "utf-8")
    counts = read_clicks([file])
    examination = estimate_examination(counts, "none")
    found = estimate_attractiveness(counts, examination)
    texts = {"text": np.array(["Ame\u0301lie "])}
    human = QuerySet.from_arrays(np.zeros((2, 0)), [2, 0], qid=[1, 1], doc_id=["a", "b"]).replace(query_columns=texts)
    agreement = measure_quality(counts, examination, found, human).agreement
    assert agreement == ({"corrected": 1.0, "click rate": 1.0, "mean rank": 0.5}, 1)


def test_evidence_says_what_is_unknown(simulate: Simulate):
    counts = simulate(shuffle=0.0)
    examination = estimate_examination(counts, "none")
    found = estimate_attractiveness(counts, examination)
    stranger = people().replace(query_columns={"text": np.full(300, "another query")})
    assert measure_quality(counts, examination, found, stranger).agreement is None
    cascade = simulate(user="cascade", cascade=True)
    examination = estimate_examination(cascade, "cascade")
    quality = measure_quality(cascade, examination, estimate_attractiveness(cascade, examination))
    assert quality.stability is None
    assert quality.perplexity is None


def test_the_page_loads_nothing_and_escapes_texts(simulate: Simulate, tmp_path: Path):
    counts = simulate()
    counts.funnel.notes.append("<script>alert(1)</script>")
    examination = estimate_examination(counts)
    found = estimate_attractiveness(counts, examination)
    table = judgment_table(counts, found)
    quality = measure_quality(counts, examination, found, people())
    file = tmp_path / "clicks.html"
    write_click_report(file, counts, examination, found, table, THRESHOLDS, quality)
    page = file.read_text()
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"<script|https?://|url\(", page)
    assert "&lt;script&gt;" in page
    for title in ("What was read", "examine each rank", "Grades", "Head and tail", "How far to trust it"):
        assert title in page
    assert "Perplexity" in page
    assert "order of human grades" in page
