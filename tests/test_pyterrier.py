"""A PyTerrier experiment without Java: BM25 in memory, features, a ranker."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from examples.movies.features import BM25, stems
from kinrank import KinRanker, KnnRanker, Memory
from kinrank.errors import DataError
from kinrank.pyterrier import MemoryRerank, RankerArtifact, Rerank

# PyTerrier calls pandas in ways that the newest pandas deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")
WORDS = ("ship", "alien", "king", "love")
CAMPS = ("cheap", "best")  # queries for the first want low numbers, for the second high ones
DOCUMENTS = pd.DataFrame(
    [
        {"docno": f"{word}{number}", "text": " ".join([word, *(["movie"] * number)]), "number": float(number)}
        for word in WORDS
        for number in range(1, 7)
    ]
)


class Retriever(pt.Transformer):
    """BM25 over a table of documents."""

    def __init__(self, documents: pd.DataFrame) -> None:
        self.documents = documents
        self.index = BM25([stems(text) for text in documents["text"]])

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        found = inp.merge(self.documents, how="cross")
        place = {docno: position for position, docno in enumerate(self.documents["docno"])}
        pairs = zip(found["query"], found["docno"], strict=True)
        found["score"] = [self.index.score(stems(query), place[docno]) for query, docno in pairs]
        return pt.model.add_ranks(found[found["score"] > 0])


def topics(numbers: range) -> pd.DataFrame:
    rows = [(f"q{n}", f"{CAMPS[n % 2]} {WORDS[n // 2 % len(WORDS)]} {n}") for n in numbers]
    return pd.DataFrame(rows, columns=["qid", "query"])


TRAIN, TEST = topics(range(48)), topics(range(48, 64))
QRELS = pd.DataFrame(
    [
        (qid, f"{query.split()[1]}{number}", number if query.startswith("best") else 7 - number)
        for qid, query in pd.concat([TRAIN, TEST]).itertuples(index=False)
        for number in range(1, 7)
    ],
    columns=["qid", "docno", "label"],
)


@pytest.fixture(scope="module")
def first_stage() -> Any:
    features = pt.apply.doc_features(lambda row: np.array([row["score"], row["number"]]))
    return Retriever(DOCUMENTS) >> features


def test_experiment(first_stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rerank = Rerank(KinRanker(settings={"n_members": 2, "n_repeats": 1}), feature_names=["bm25", "number"])
    pipeline = first_stage >> rerank
    pipeline.fit(TRAIN, QRELS)
    systems = [first_stage, pipeline]
    measured = pt.Experiment(systems, TEST, QRELS, ["ndcg_cut_6"], plan="tree")["ndcg_cut_6"]
    assert measured[0] < 0.9  # BM25 prefers short documents, in every camp
    assert measured[1] > 0.99  # the text tells the camp
    ranked = pipeline.transform(TEST)
    assert ranked["qid"].nunique() == len(TEST)
    assert {"features", "query", "rank"} <= set(ranked.columns)

    rerank.save(tmp_path / "model")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    named = project["project"]["entry-points"]["pyterrier.artifact"]
    points = [EntryPoint(name, target, "pyterrier.artifact") for name, target in named.items()]
    monkeypatch.setattr(pt.utils, "entry_points", lambda group: points if group == "pyterrier.artifact" else [])
    artifact = pt.Artifact.load(str(tmp_path / "model"))
    assert isinstance(artifact, RankerArtifact)
    again = (first_stage >> artifact.rerank()).transform(TEST)
    pd.testing.assert_frame_equal(again, ranked)


def test_vectors_and_row_order(first_stage: Any) -> None:
    results = first_stage.transform(TRAIN)
    camp = {qid: np.eye(2)[int(qid[1:]) % 2] for qid in TRAIN["qid"]}
    results = results.assign(query_vec=[camp[qid] for qid in results["qid"]])
    rerank = Rerank(KnnRanker(10, describe="summaries+text", encoder=None)).fit(results, QRELS)
    ranked = rerank.transform(results).set_index(["qid", "docno"])["score"]
    shuffled = rerank.transform(results.sample(frac=1, random_state=0)).set_index(["qid", "docno"])["score"]
    np.testing.assert_allclose(shuffled.loc[ranked.index], ranked)
    assert set(rerank.transform(results[:0]).columns) == set(rerank.transform(results).columns)


def test_a_missing_stage_is_named(first_stage: Any) -> None:
    with pytest.raises(DataError, match="no column 'features' among"):
        Rerank(KnnRanker()).fit(Retriever(DOCUMENTS).transform(TRAIN), QRELS)
    with pytest.raises(DataError, match="no results to learn from"):
        Rerank(KnnRanker()).fit(first_stage.transform(TRAIN)[:0], QRELS)


def test_memory_learns_from_judgments() -> None:
    rerank = MemoryRerank(Memory(":memory:"))
    pipeline = Retriever(DOCUMENTS) >> rerank
    first = pipeline.transform(TEST)
    pd.testing.assert_frame_equal(
        first[["qid", "docno", "rank"]].sort_values(["qid", "rank"], ignore_index=True),
        Retriever(DOCUMENTS).transform(TEST)[["qid", "docno", "rank"]].sort_values(["qid", "rank"], ignore_index=True),
    )
    best = QRELS.assign(label=(QRELS["label"] == 6).astype(int))
    pipeline.fit(TRAIN, best)
    measured = pt.Experiment([Retriever(DOCUMENTS), pipeline], TEST, best, ["recip_rank"])["recip_rank"]
    assert measured[1] > 0.9 > measured[0]
    ranked = pipeline.transform(TEST)
    top = ranked[ranked["rank"] == 0]
    assert top["reason"].str.startswith("chosen for *").all()
    assert rerank.transform(ranked[:0]).empty
    with pytest.raises(DataError, match="no column 'query'"):
        rerank.transform(ranked.drop(columns="query"))
