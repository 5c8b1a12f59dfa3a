from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from kinrank import QuerySet
from kinrank.clicks import read_clicks
from kinrank.clicks._report import measure_quality, quality_lines, trust
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness
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


def test_quality_in_words(simulate: Simulate):
    counts = simulate()
    examination = estimate_examination(counts)
    found = estimate_attractiveness(counts, examination)
    quality = measure_quality(counts, examination, found, people())
    answer, *lines = quality_lines(examination, quality)
    assert re.fullmatch(r"Trust this log for ranks 1 to \d+: .* other days agree\.", answer)
    assert sum("queries have" in line for line in lines) == len(lines) - 3
    assert re.search(r"rank correlation of 0\.\d\d\.", lines[-3])
    assert re.search(r"Perplexity .*: swaps 1\.\d{4}, click rate of the rank 1\.", lines[-2])
    assert re.search(r"order of human grades, of [\d,]+: corrected 0\.\d{3}, click rate", lines[-1])
    unknown = list(quality_lines(examination, measure_quality(counts, examination, found)))
    assert unknown[-1] == "Nothing here compares clicks with relevance: pass human judgments with --human."


def test_a_log_that_cannot_be_trusted_is_not(simulate: Simulate):
    counts = simulate()
    examination = estimate_examination(counts)
    quality = measure_quality(counts, examination, estimate_attractiveness(counts, examination))
    assert quality.perplexity is not None
    by_rank = quality.perplexity | {"click rate of the rank": 1.0}
    for changed, measured, reason in (
        (replace(examination, fits=False), quality, "does not fit"),
        (replace(examination, low=examination.low / 2), quality, "too uncertain"),
        (examination, replace(quality, stability=(0.2, 100)), "other days order documents otherwise"),
        (examination, replace(quality, perplexity=by_rank), "by the rank alone"),
    ):
        answer = trust(changed, measured)
        assert answer.startswith("Do not trust this log")
        assert reason in answer
    high = examination.high * np.where(examination.ranks == 3, 9, 1)
    assert trust(replace(examination, high=high), quality).startswith("Trust this log for ranks 1 to 2 and 4")
    assert "assumed, not estimated" in trust(estimate_examination(counts, "none"), quality)


def test_clicks_without_attraction_are_not_trusted(tmp_path: Path):
    """A log in which people click by rank alone, whatever is shown, says nothing about documents."""
    rng = np.random.default_rng(0)
    file = tmp_path / "log.csv"
    rows = []
    for day in range(1, 11):
        for session in range(400):
            for rank, document in enumerate(rng.permutation(6).tolist(), 1):
                clicked = int(rng.random() < 0.6 / rank)
                rows.append(
                    f"q{session % 20},d{day}s{session},d{document},{rank},{clicked},2026-10-{day:02d}T10:00:00Z"
                )
    file.write_text("query,session,document,rank,clicked,time\n" + "\n".join(rows) + "\n", "utf-8")
    counts = read_clicks([file])
    examination = estimate_examination(counts)
    quality = measure_quality(counts, examination, estimate_attractiveness(counts, examination))
    assert trust(examination, quality).startswith("Do not trust this log")
