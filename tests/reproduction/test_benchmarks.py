from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from benchmarks import query_class_mwmbl
from reproduction import results
from reproduction.catalog import EXPERIMENTS
from reproduction.results import Results

DOCS = Path(__file__).parents[2] / "docs"
EXPERIMENTS_OF = {
    "atvt": ["atvt"],
    "cluster_letor": ["cluster-methods", "cluster-oracles"],
    "ensemble_ohsumed": ["ensemble"],
    "knn_bound": ["bound"],
    "knn_intents": ["intents", "intent-curves"],
    "knn_letor": ["knn-letor"],
    "letor_single": ["letor-baselines"],
    "query_class_mwmbl": ["query-class"],
}


@pytest.mark.parametrize("benchmark", EXPERIMENTS_OF)
def test_benchmark_runs_its_experiments(benchmark: str, monkeypatch: pytest.MonkeyPatch):
    module = importlib.import_module(f"benchmarks.{benchmark}")
    stored = Results.read(DOCS / results.FILE).figures
    called: list[str] = []

    def reproduce(name: str) -> dict[str, object]:
        called.append(name)
        return stored[EXPERIMENTS[name].name]

    monkeypatch.setattr(module, "reproduce", reproduce)
    assert module.run()
    assert called == EXPERIMENTS_OF[benchmark]


@pytest.mark.data("text/mwmbl")
@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
def test_benchmark_figures_match_the_page():
    figures = query_class_mwmbl.run()
    stored = Results.read(DOCS / results.FILE).figures["query-class"]
    assert list(figures) == list(stored)
    for method, row in stored.items():
        assert figures[method]["NDCG@10"] == pytest.approx(row["NDCG@10"], abs=0.001), method
