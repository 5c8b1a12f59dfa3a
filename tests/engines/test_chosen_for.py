"""The field of texts that a document was chosen for: no judged query finds its own text."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.engines import FeatureSet
from kinrank.engines._logger import FeatureLogger
from kinrank.engines.base import RetryingPool
from kinrank.engines.chosen_for import FOLDS, Choice, TextLimits, fold_of, stored, without_fold
from kinrank.engines.lucene import LuceneEngine
from kinrank.errors import EngineRefusedError, ParameterError
from tests.engines.conftest import OpenEngine
from tests.engines.fault_proxy import faulty_proxy
from tests.engines.servers import ADDRESSES
from tests.processes import PATIENCE

FEATURES = """
[search]
multi_match = ["title^2", "chosen_for"]
type = "most_fields"
[features]
chosen = { match = "chosen_for" }
both = { multi_match = ["title^2", "chosen_for^3"], type = "most_fields" }
phrase = { phrase = "chosen_for" }
raw = { clause = { match = { chosen_for = "{{text}}" } }, max = 50.0 }
"""


def test_few_and_short_texts_are_kept_those_that_count_most():
    choices = [Choice("d", f"text {n}", n) for n in range(1, 40)] + [Choice("d", "x" * 101, 99), Choice("e", "t", 0)]
    assert TextLimits(texts=3).of(choices) == {"d": ["text 39", "text 38", "text 37"]}
    assert TextLimits(texts=0).of(choices) == {}
    with pytest.raises(ParameterError, match="texts must be at least 0, got -1"):
        TextLimits(texts=-1)


def test_the_same_words_are_in_one_fold_and_folds_are_even():
    assert fold_of("Spider-Man (2)") == fold_of("2  man\tSPIDER")
    counts = np.bincount([fold_of(f"query {n}") for n in range(1000)], minlength=FOLDS)
    assert counts.min() > 150
    assert sorted(text for texts in stored(["a", "b", "c"]).values() for text in texts) == ["a", "b", "c"]


def test_every_kind_of_clause_reads_the_field_without_the_fold():
    seen = without_fold(FeatureSet.parse(FEATURES), ["chosen_for"], 2)
    clauses = [feature.clause("alien") for feature in (*seen.features, seen.candidates.text)]
    assert all("chosen_for_folds.without_2" in str(clause) for clause in clauses)
    assert not any("chosen_for'" in str(clause) or "chosen_for^" in str(clause) for clause in clauses)
    assert "chosen_for_folds.without_2^3" in str(clauses[1])


@pytest.mark.parametrize(
    "feature",
    [
        '{ multi_match = ["title", "chosen*"] }',
        '{ multi_match = ["*"] }',
        '{ match = "chosen_for_folds.texts_0" }',
        '{ clause = { query_string = { query = "{{text}}" } } }',
        '{ clause = { query_string = { query = "chosen_for:{{text}}", default_field = "title" } } }',
        '{ clause = { bool = { should = [{ multi_match = { query = "{{text}}", fields = ["*_for"] } }] } } }',
        "{ script = \"doc['chosen_for'].size()\" }",
    ],
)
def test_what_may_read_the_field_without_naming_it_is_refused(feature: str):
    with pytest.raises(EngineRefusedError, match=r"feature 'f' reads the field 'chosen_for' by .*name the fields"):
        without_fold(FeatureSet.parse(f"[features]\nf = {feature}"), ["chosen_for"], 0)


def judged_at_random(n_queries: int, n_documents: int, words: int) -> QuerySet:
    """Return queries of random words, each with one random document: nothing can be learned from others."""
    rng = np.random.default_rng(1)
    return QuerySet.from_arrays(
        np.empty((n_queries, 0)),
        np.ones(n_queries),
        qid=np.arange(n_queries),
        doc_id=[f"d{n}" for n in rng.integers(n_documents, size=n_queries)],
        query_columns={"text": [" ".join(f"w{w}" for w in rng.integers(words, size=2)) for _ in range(n_queries)]},
    )


def texts_of(judged: QuerySet) -> dict[str, list[str]]:
    texts = judged.query_columns["text"]
    return TextLimits(texts=99).of(Choice(str(d), str(t), 1) for d, t in zip(judged.doc_id, texts, strict=True))


def indexed(open_engine: OpenEngine, name: str, n_documents: int, features: str | None = FEATURES) -> LuceneEngine:
    engine = open_engine(name, features)
    engine.index(
        ((f"d{n}", {"title": "film"}) for n in range(n_documents)),
        settings={"settings": {"index": {"number_of_shards": 1, "number_of_replicas": 0}}},
    )
    return engine


@pytest.mark.engine
def test_no_judged_query_finds_its_own_text(engine_name: str, open_engine: OpenEngine):
    # Words that no other query has: whatever the features of a training row show, they show the label.
    judged = judged_at_random(60, 20, 10**9)
    engine = indexed(open_engine, engine_name, 20)
    engine.write_chosen_for(texts_of(judged), "chosen_for")
    for query in judged:  # what the service sees: the text is there
        text, document = str(query.query_columns["text"][0]), str(query.doc_id[0])
        assert engine.search(text, size=5).doc_id.tolist() == [document]
        assert engine.features(text, [document]).min() > 0
    judged_only = FeatureLogger(engine, candidates="judged")
    logged = [query for query, _ in judged_only.log(judged, RetryingPool(2))]
    assert max(query.X.max() for query in logged) == 0
    found = [query for query, _ in FeatureLogger(engine).log(judged, RetryingPool(2))]
    assert found == [None] * len(judged)  # nor as a candidate


@pytest.mark.engine
def test_the_feature_says_nothing_about_random_labels(open_engine: OpenEngine):
    # Shared words: leaving out only the query's own text would give the label away backwards.
    judged = judged_at_random(1500, 30, 40)
    engine = indexed(open_engine, "elasticsearch", 30, '[features]\nchosen = { match = "chosen_for" }')
    engine.write_chosen_for(texts_of(judged), "chosen_for")

    def area(engine_of: object) -> float:
        ranks = []
        for query in judged[:400]:
            text = str(query.query_columns["text"][0])
            values = engine_of(text).features(text, [f"d{n}" for n in range(30)])[:, 0]  # type: ignore[operator]
            own = values[int(str(query.doc_id[0])[1:])]
            ranks.append((np.sum(values < own) + 0.5 * (np.sum(values == own) - 1)) / 29)
        return float(np.mean(ranks))

    assert area(lambda _: engine) > 0.65  # the leak, if there were no folds
    assert abs(area(engine.without_own_texts) - 0.5) < 0.045  # three standard errors


@pytest.mark.engine
def test_texts_are_written_again_only_where_they_changed_and_removed(engine_name: str, open_engine: OpenEngine):
    engine = indexed(open_engine, engine_name, 6)
    texts = {"d1": ["red", "blue"], "d2": ["old car"], "d9": ["not there"]}
    counts = engine.write_chosen_for(texts, "chosen_for")
    assert (counts.written, counts.unchanged, counts.removed, counts.absent) == (2, 0, 0, 1)
    counts = engine.write_chosen_for(texts, "chosen_for")
    assert (counts.written, counts.unchanged, counts.removed, counts.absent) == (0, 2, 0, 1)
    counts = engine.write_chosen_for({"d1": ["red"]}, "chosen_for")
    assert (counts.written, counts.unchanged, counts.removed, counts.absent) == (1, 0, 1, 0)
    assert [engine.search(text, size=5).doc_id.tolist() for text in ("red", "blue", "car")] == [["d1"], [], []]
    assert "old car" not in str(list(engine.scan({"match_all": {}}, "_doc")))
    engine.index([("d1", {"title": "indexed anew"})])
    assert engine.write_chosen_for({"d1": ["red"]}, "chosen_for").written == 1
    assert engine.search("red", size=5).doc_id.tolist() == ["d1"]
    with pytest.raises(EngineRefusedError, match="has a field 'title' of its own"):
        engine.write_chosen_for(texts, "title")
    with pytest.raises(ParameterError, match="is no name of a field"):
        engine.write_chosen_for(texts, "a.b")


@pytest.mark.engine
def test_a_killed_run_is_finished_by_the_next(open_engine: OpenEngine, tmp_path: Path):
    n = int(os.environ.get("KINRANK_CHOSEN_DOCUMENTS", "5000"))
    engine = indexed(open_engine, "elasticsearch", n)
    lines = [f"q{i}\tword{i % 997} text {i}\td{i}\t1" for i in range(n)]
    (tmp_path / "judged.tsv").write_text("\n".join(["qid\tquery\tdoc_id\ty", *lines]) + "\n")
    address = f"{os.environ.get('KINRANK_ELASTICSEARCH', ADDRESSES['elasticsearch'])}/{engine.index_name}"
    code = "from kinrank.cli import main; main()"
    words = [sys.executable, "-c", code, "admin", "index", str(tmp_path / "judged.tsv")]
    command = [*words, address]

    def n_written() -> int:
        engine._send("POST", f"/{engine.index_name}/_refresh", {}, None, 60.0)
        exists = {"query": {"exists": {"field": "chosen_for"}}}
        return int(engine._send("POST", f"/{engine.index_name}/_count", {}, exists, 60.0)["count"])

    killed, held = threading.Event(), threading.Event()

    def third_waits(number: int) -> threading.Event | None:
        if number < 2:
            return None
        held.set()
        return killed

    with faulty_proxy(engine.hosts[0], third_waits, "_bulk") as url:
        process = subprocess.Popen([*words, f"elasticsearch+{url}/{engine.index_name}"], stderr=subprocess.DEVNULL)
        assert held.wait(PATIENCE)
        process.kill()
        process.wait()
        killed.set()
    before = n_written()
    assert 0 < before < n
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = " ".join(done.stderr.split())
    assert f"chosen_for: wrote the texts of {n - before:,} documents; {before:,} had them" in said
    assert n_written() == n
    done = subprocess.run([*command, "--set", "texts=0"], capture_output=True, text=True, check=True)
    assert f"{n:,} lost theirs" in " ".join(done.stderr.split())
    assert n_written() == 0


@pytest.mark.engine
def test_an_engine_with_fewer_features_does_not_know_own_texts_either(engine_name: str, open_engine: OpenEngine):
    judged = judged_at_random(5, 5, 10**9)
    engine = indexed(open_engine, engine_name, 5)
    engine.write_chosen_for(texts_of(judged), "chosen_for")
    for query in judged:
        text, document = str(query.query_columns["text"][0]), str(query.doc_id[0])
        few = engine.with_features({"raw", "chosen", "other"})
        assert few.feature_names == ("chosen", "raw")
        assert few.features(text, [document]).min() > 0
        for honest in (few.without_own_texts(text), engine.without_own_texts(text).with_features({"chosen", "raw"})):
            assert honest.feature_names == ("chosen", "raw")
            assert honest.features(text, [document]).max() == 0
            assert len(honest.search(text, size=5)) == 0
