"""The benchmark of remembered documents, on a collection that takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import choices_recall
from kinrank import QuerySet
from kinrank.engines import Hits, LoggedFeatures
from tests.engines.toy import ToyEngine

N_QUERIES, N_DOCUMENTS = 40, 30


class Halves(ToyEngine):
    """Finds only documents with even numbers."""

    def search(self, query: str, *, size: int, **_: Any) -> Hits:
        ids = [f"d{i}" for i in range(0, N_DOCUMENTS, 2)]
        return Hits(np.array(ids), np.linspace(1, 0, len(ids)))

    def log(self, query: str, doc_ids: Any, **_: Any) -> LoggedFeatures:
        numbers = np.array([int(doc_id[1:]) for doc_id in doc_ids])
        noise = np.random.default_rng(len(query)).random(len(numbers))
        return LoggedFeatures(np.stack([numbers % 5, noise], axis=1).astype(np.float32), numbers < N_DOCUMENTS)


def test_remembered_documents_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, N_DOCUMENTS, (N_QUERIES, 4))
    judged = QuerySet.from_arrays(
        np.zeros((4 * N_QUERIES, 0), dtype=np.float32),
        np.ones(4 * N_QUERIES),
        qid=np.repeat([f"q{i:02}" for i in range(N_QUERIES)], 4),
        doc_id=[f"d{document}" for document in wanted.ravel()],
        query_columns={"text": [f"wish {'x' * i}" for i in range(N_QUERIES)]},
    )
    documents = np.eye(N_DOCUMENTS, dtype=np.float32)
    queries = np.stack([documents[each].sum(axis=0) for each in wanted])
    monkeypatch.setattr(choices_recall, "N_LISTS", 30)
    corpus = choices_recall.Corpus(judged, np.array([f"d{i}" for i in range(N_DOCUMENTS)]), documents, queries)
    figures = choices_recall.measured(Halves(), corpus, tmp_path, "rankrls")
    row = figures["two searches, recurring"]
    assert row["with"]["recall@10"] > row["without"]["recall@10"] + 0.1
    assert row["with"]["NDCG@10"] > row["without"]["NDCG@10"]
    alone = figures["engine, recurring"]
    assert alone["with"] == alone["without"]
    assert alone["remembered documents per query"] == 0
