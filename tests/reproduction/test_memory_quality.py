"""The benchmark of memory on a small collection: folds by family, kept parts, methods that are added, Lucene's BM25."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import memory_meaning, memory_quality
from benchmarks.memory_collections import FAMILY, Collection, best_dcg, even_folds
from benchmarks.memory_quality import Task, bm25
from kinrank import QuerySet
from kinrank.measure import NDCG

N = 60


@pytest.fixture
def shops() -> Collection:
    """Queries in 15 families of four; each family wants one document, which its feature does not tell."""
    rng = np.random.default_rng(0)
    words = np.array(["lamp", "chair", "table", "sofa", "carpet", "mirror", "shelf", "plant", "clock", "vase"])
    things = np.array([f"{a} {b}" for a in words for b in words if a < b])[:15]
    family = np.repeat(np.arange(15), 4)
    text = np.array([f"{things[each]} {extra}" for each in range(15) for extra in ("cheap", "red", "new", "small")])
    documents = np.tile(np.arange(15), N)
    queries = QuerySet.from_arrays(
        rng.normal(size=(15 * N, 2)),
        documents == np.repeat(family, 15),
        qid=np.repeat(np.arange(N), 15),
        doc_id=documents.astype(np.str_),
        query_columns={"text": text, FAMILY: family},
    )
    return Collection(
        queries, dict(zip(map(str, range(15)), things.tolist(), strict=True)), ideal=best_dcg([np.ones(2)] * N)
    )


def test_a_giant_family_is_in_the_last_fold_and_the_others_are_even():
    group = np.r_[np.zeros(70), np.arange(1, 31)]
    fold = even_folds(group, 4)
    assert np.bincount(fold).tolist() == [10, 10, 10, 70]
    assert all(len(np.unique(fold[group == each])) == 1 for each in np.unique(group))


def test_families_are_never_split(shops: Collection):
    for fold in range(4):
        task = Task.of(shops, "family", fold)
        assert not set(task.train.query_columns[FAMILY]) & set(task.test.query_columns[FAMILY])


def test_parts_are_kept_and_a_method_is_added_by_one_line(
    shops: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(memory_quality, "RESULTS", tmp_path)
    monkeypatch.setattr(memory_quality, "READERS", {"shops": None})
    monkeypatch.setattr(memory_quality, "read", lambda _: shops)
    methods = ["LightGBM", "everyone", "memory columns", "BM25"]
    rows = memory_quality.run(methods=",".join(methods))["rows"]
    found = {(row["split"], row["method"]): row for row in rows}
    assert found["random", "memory columns"]["gain"] > 0.3
    assert found["random", "memory columns"]["queries"] == N
    assert found["random", "LightGBM"]["all judgments"] < found["random", "LightGBM"]["NDCG@10"]
    assert found["random", "BM25"]["NDCG@10"] > 0.99
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert len(times) == 2 * 4 * 4
    monkeypatch.setitem(memory_quality.METHODS, "perfect", lambda task: task.test.grades)
    rows = memory_quality.run(methods=",".join([*methods, "perfect"]))["rows"]
    assert {row["NDCG@10"] for row in rows if row["method"] == "perfect"} == {1.0}
    assert {file: file.stat().st_mtime_ns for file in times} == times
    assert "| shops, family | perfect | 60 | 1.0000 |" in capsys.readouterr().out


def test_split_by_meaning_its_rivals_know_who_chose_a_document(
    shops: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def things(texts: list[str]) -> np.ndarray:  # near in meaning if they are about the same things
        return np.array([np.random.default_rng(sum(map(ord, text))).normal(size=64) for text in map(thing_of, texts)])

    def thing_of(text: str) -> str:
        return " ".join(text.split()[:2])

    monkeypatch.setattr(memory_quality, "RESULTS", tmp_path / "scores")
    monkeypatch.setattr(memory_quality, "READERS", {"shops": None})
    monkeypatch.setattr(memory_quality, "read", lambda _: shops)
    monkeypatch.setattr(memory_meaning, "RESULTS", tmp_path / "vectors")
    monkeypatch.setattr(memory_meaning, "ENCODERS", {"MiniLM": lambda: things, "static": lambda: things})
    collection = memory_meaning.with_queries("shops", shops, ["MiniLM"])
    meant = memory_meaning.by_meaning("shops", collection)
    assert "shops: 60 queries, " in capsys.readouterr().err
    family = meant.queries.query_columns[FAMILY]
    assert all(np.bincount(family[4 * thing : 4 * thing + 4]).max() > 1 for thing in range(15))
    task = Task.of(replace(meant, fold=np.arange(N) % 4), "official", 0)  # all families are known
    nearest = memory_meaning.nearest_question(task)[1].ravel()
    right = task.test.grades > 0
    assert nearest[right].min() > 0.999
    assert nearest[~right].max() < 0.99
    found = {name: memory_quality.METHODS_OF_MEANING[name](task) for name in ("LightGBM", "nearest", "prototype")}
    quality = {name: (NDCG @ 10).mean(each, task.test.grades, task.test.offsets) for name, each in found.items()}
    assert quality["nearest"] > quality["LightGBM"] + 0.3
    assert quality["prototype"] > quality["LightGBM"] + 0.3
    columns = memory_meaning._prototype_columns(task)[1]
    assert columns[right, 12].min() > 0.999  # the nearest by vectors that chose it
    assert columns[right, 5].min() < 0.999  # by letters
    cosine = memory_meaning.dense(task).test.X[:, -1]
    assert cosine[right].min() > 0.999
    monkeypatch.setattr(memory_quality, "COMPARED", (("nearest", "LightGBM"),))
    made = memory_quality.run(split="meaning", methods="LightGBM,nearest,dense LightGBM,dense nearest")
    assert [(row["one"], row["other"]) for row in made["tests"]] == [
        ("nearest", "LightGBM"),
        ("dense nearest", "dense LightGBM"),
    ]
    assert len(list((tmp_path / "vectors").glob("*.npz"))) == 3


def test_columns_of_rivals_do_not_see_the_query_itself(shops: Collection):
    task = Task.of(shops, "random", 0)
    alone = task.cross_fitted(1, lambda counted, queries, _: np.full((queries.n_rows, 1), counted.sum()))
    folds = np.bincount(task.part)
    assert alone[0].ravel().tolist() == np.repeat(len(task.train) - folds[task.part], 15).tolist()
    assert (alone[1] == len(task.train)).all()


def test_bm25_is_the_formula_of_lucene():
    weights = bm25(sp.csr_matrix([[2, 1, 0], [1, 0, 0], [0, 0, 3]])).toarray()
    idf = np.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    assert weights[0, 0] == pytest.approx(idf * 2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / (7 / 3))))
    assert weights[2, 0] == 0
