"""Benchmarks of the papers' claims run the experiments of the page."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from benchmarks import query_class_mwmbl
from reproduction import results
from reproduction.catalog import PARTS
from reproduction.results import Results

DOCS = Path(__file__).parents[2] / "docs"
CLAIMS = {
    "atvt": ["atvt"],
    "cluster_letor": ["cluster-methods", "cluster-oracles"],
    "ensemble_ohsumed": ["ensemble"],
    "knn_bound": ["bound"],
    "knn_intents": ["intents", "intent-curves"],
    "knn_letor": ["knn-letor"],
    "letor_single": ["letor-baselines"],
    "query_class_mwmbl": ["query-class"],
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_benchmark_measures_the_parts_of_its_claim(claim: str, monkeypatch: pytest.MonkeyPatch):
    module = importlib.import_module(f"benchmarks.{claim}")
    stored = Results.read(DOCS / results.FILE).figures
    asked: list[str] = []

    def reproduce(part: str) -> dict[str, object]:
        asked.append(part)
        return stored[PARTS[part].name]

    monkeypatch.setattr(module, "reproduce", reproduce)
    assert module.run()
    assert asked == CLAIMS[claim]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
def test_a_benchmark_finds_what_the_page_says():
    found = query_class_mwmbl.run()
    stored = Results.read(DOCS / results.FILE).figures["query-class"]
    assert list(found) == list(stored)
    for method, row in stored.items():
        assert found[method]["NDCG@10"] == pytest.approx(row["NDCG@10"], abs=0.001), method
