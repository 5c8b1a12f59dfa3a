"""What a field with the texts that documents were chosen for gains in Elasticsearch, and what it costs.

Editors' answers on GOV.UK, claims of SciFact, questions of NFCorpus, and 4,000 queries for movies of MSRD. Known
queries are written with ``kinrank admin index``'s code; others are asked. Queries are divided at random, by family
(near-duplicate texts; movies), and officially if there is an official test. One part of four is asked.

- *text*: ``multi_match`` over the document, in its analyzed and its plain form;
- *text + field*: the same with the field. Its boost, one of three, is the best for 150 known queries, each without the
  texts of its own fold, as `kinrank log` would search for it;
- *text, memory*: `kinrank.Memory` of the known queries reorders the first 100 hits and adds up to ten documents, as the
  service does;
- *text + field, memory*: the same on the hits of the field: kin on top;
- *own text left in*: the boost-chosen search for those 150 known queries, with and without their own texts: the leak;
- with ``--train yes``, *KinRanker* and *KinRanker + field*: trained on features of 600 known queries as `kinrank log`
  logs them, from the hits of *text* and of *text + field* with boost 1, without weights per query.

NDCG@10 and recall@100 are relative to all relevant documents. ``--asked`` is how many queries are asked, at most.
``KINRANK_ELASTICSEARCH`` is the address of a running server; without it, one is started.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from benchmarks.common import data_dir, log_progress, msrd
from benchmarks.encoders import msrd_texts
from benchmarks.engine_msrd import running
from benchmarks.memory_collections import READERS, even_folds, relevant, texts
from benchmarks.memory_stream import ndcg
from kinrank import KinRanker, Memory, QuerySet
from kinrank.engines import FeatureSet, connect
from kinrank.engines._logger import FeatureLogger
from kinrank.engines.base import RetryingPool
from kinrank.engines.chosen_for import Choice, TextLimits
from kinrank.engines.lucene import LuceneEngine
from kinrank.kin.families import families_of

OPTIONS = {"collection": ("all", "govuk", "scifact", "nfcorpus", "msrd"), "asked": "200", "train": ("no", "yes")}
PORT = 9295
PARTS, MOVIES, TUNED = 4, 4_000, 150
BOOSTS = (1, 2, 4)
TEXT, FIELD = ("text.english", "text"), "chosen_for"
INDEX = {
    "settings": {"index": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": -1}},
    "mappings": {
        "properties": {"text": {"type": "text", "fields": {"english": {"type": "text", "analyzer": "english"}}}}
    },
}
TRAINED = 600
TEXT_COLUMN = "text"
SEEN = """
[search]
multi_match = ["text.english", "text"]
type = "most_fields"
[features]
english = { match = "text.english" }
plain = { match = "text" }
all = { match = "text.english", operator = "and" }
phrase = { phrase = "text.english", slop = 3 }
words = { query_length = "words" }
"""
SEEN_WITH_FIELD = f"""{SEEN.replace('"text"]', '"text", "chosen_for"]')}
chosen = {{ match = "chosen_for" }}
chosen_phrase = {{ phrase = "chosen_for" }}
"""
Asked = dict[str, Mapping[str, float]]
"""The grades of the relevant documents of each query."""
Search = Callable[[str], list[str]]


@dataclass(frozen=True)
class Collection:
    """Documents, queries with what is relevant for them, and the splits: which queries are asked."""

    documents: Mapping[str, str]
    asked: Asked
    splits: Mapping[str, NDArray[np.bool_]]


def run(collection: str, asked: str, train: str) -> dict[str, object]:
    """Return quality, time and size by collection and split."""
    server = os.environ.get("KINRANK_ELASTICSEARCH")
    with nullcontext(server) if server else running("elasticsearch", port=PORT) as address:
        names = [name for name in OPTIONS["collection"] if name != "all"] if collection == "all" else [collection]
        return {name: measure(name, read(name), str(address), int(asked), trained=train == "yes") for name in names}


def read(name: str) -> Collection:
    """Return a collection."""
    official: set[str] = set()
    if name == "msrd":
        documents, asked, group, official = movies()
    else:
        documents, asked = dict(texts(name)), {text: grades for text, grades in relevant(name).items() if grades}
        group = families_of(asked)
        if name != "govuk":
            official = official_texts(name)
    rng = np.random.default_rng(0)
    splits = {"random": rng.integers(PARTS, size=len(asked)) == 0, "family": even_folds(group, PARTS) == 0}
    if official:
        splits["official"] = np.array([text in official for text in asked])
    return Collection(documents, asked, splits)


def movies() -> tuple[dict[str, str], Asked, NDArray[Any], set[str]]:
    """Return the movies, some queries, their movies, and those of the official test."""
    parts, text = msrd(), msrd_texts()
    asked: Asked = {}
    group, official = [], set()
    for part, queries in parts.items():
        n_kept = MOVIES * len(queries) // sum(map(len, parts.values()))
        kept = np.random.default_rng(0).permutation(len(queries))[:n_kept]
        for query in (queries[int(place) : int(place) + 1] for place in np.sort(kept)):
            words, rows = text[str(query.qid[0])], np.flatnonzero(query.grades > 0)
            assert query.doc_id is not None
            if len(rows) and words not in asked:
                asked[words] = dict.fromkeys(query.doc_id[rows].astype(np.str_).tolist(), 1.0)
                group.append(query.query_columns["movie"][0])
                if part == list(parts)[-1]:
                    official.add(words)
    return dict(READERS["msrd"]().texts), asked, np.array(group), official


def official_texts(name: str) -> set[str]:
    """Return the texts of the official test queries."""
    folder = data_dir() / "text" / name
    with gzip.open(folder / "qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        test = {row["query-id"] for row in csv.DictReader(lines, delimiter="\t") if row["split"] == "test"}
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {each["text"] for each in map(json.loads, lines) if each["_id"] in test}


def measure(name: str, collection: Collection, address: str, n_asked: int, *, trained: bool) -> dict[str, object]:
    """Return the figures of one collection."""
    with connect(f"{address}/chosen-for-{name}", features(None), timeout=60.0) as engine:
        assert isinstance(engine, LuceneEngine)
        engine.delete_index()
        engine.index(((number, {"text": text}) for number, text in collection.documents.items()), settings=INDEX)
        before = size_of(engine)
        figures: dict[str, object] = {"documents": len(collection.documents), "queries": len(collection.asked)}
        for split, asked in collection.splits.items():
            figures[split] = measure_split(engine, collection, asked, n_asked, trained=trained)
            log_progress(f"{name}, {split}: {figures[split]}")
        figures["index MB without and with the field"] = [round(each / 1e6, 2) for each in (before, size_of(engine))]
        engine.delete_index()
        return figures


def measure_split(
    engine: LuceneEngine, collection: Collection, held_out: NDArray[np.bool_], n_asked: int, *, trained: bool
) -> dict[str, object]:
    """Return the figures of one split."""
    rng = np.random.default_rng(1)
    order = [list(collection.asked)[place] for place in rng.permutation(len(held_out))]
    testing = {text for text, out in zip(collection.asked, held_out, strict=True) if out}
    known = {text: collection.asked[text] for text in order if text not in testing}
    asked = {text: collection.asked[text] for text in order if text in testing}
    asked = dict(list(asked.items())[:n_asked])
    choices = (Choice(number, text, grade) for text, grades in known.items() for number, grade in grades.items())
    start = time.perf_counter()
    engine.write_chosen_for(TextLimits().of(choices), FIELD)
    seconds = time.perf_counter() - start
    memory = Memory(":memory:", people=0)
    for text, grades in known.items():
        memory.learn(text, liked=list(grades), user=text)

    tuned = dict(list(known.items())[:TUNED])
    engines = {boost: with_features(engine, features(boost)) for boost in BOOSTS}
    honest = {boost: quality(tuned, without_own(engines[boost])) for boost in BOOSTS}
    boost = max(BOOSTS, key=lambda each: honest[each][0].mean())
    leaking = quality(tuned, hits_of(engines[boost]))
    text_only, field = with_features(engine, features(None)), engines[boost]
    ways: dict[str, Search] = {
        "text": hits_of(text_only),
        "text + field": hits_of(field),
        "text, memory": remembering(text_only, memory),
        "text + field, memory": remembering(field, memory),
    }
    if trained:
        ways["KinRanker"] = ranking(with_features(engine, FeatureSet.parse(SEEN)), known)
        ways["KinRanker + field"] = ranking(with_features(engine, FeatureSet.parse(SEEN_WITH_FIELD)), known)
    for way in ways.values():  # opens connections and compiles
        for text in tuned:
            way(text)
            break
    times: dict[str, list[float]] = {way: [] for way in ways}
    found = {way: quality(asked, timed(search, times[way])) for way, search in ways.items()}
    base = found["text"][0]
    return {
        "known": len(known),
        "asked": len(asked),
        "boost": boost,
        "seconds to write": round(seconds, 1),
        **{
            way: {
                "NDCG@10": round(float(gains.mean()), 4),
                "recall@100": round(float(recall.mean()), 4),
                "ms": round(1e3 * statistics.median(times[way]), 2),
                **({} if way == "text" else {"p": float(f"{ttest_rel(gains, base).pvalue:.1g}")}),
            }
            for way, (gains, recall) in found.items()
        },
        "own text left out, left in": [round(float(each[0].mean()), 4) for each in (honest[boost], leaking)],
    }


def features(boost: int | None) -> FeatureSet:
    """Return the search over the text, and the field with a boost."""
    fields = [*TEXT, *([] if boost is None else [f"{FIELD}^{boost}"])]
    return FeatureSet.parse(
        f'[search]\nmulti_match = {fields}\ntype = "most_fields"\n[features]\ntext = {{ match = "text" }}'
    )


def with_features(engine: LuceneEngine, chosen: FeatureSet) -> LuceneEngine:
    """Return the same engine with another search."""
    host = f"{engine.name}+{engine.hosts[0]}/{engine.index_name}"
    opened = connect(host, replace(chosen), timeout=60.0)
    assert isinstance(opened, LuceneEngine)
    return opened


def hits_of(engine: LuceneEngine) -> Search:
    """Return a search for the first 100 documents."""
    return lambda text: engine.search(text, size=100).doc_id.tolist()


def without_own(engine: LuceneEngine) -> Search:
    """Return a search that does not know the text of the query."""
    return lambda text: engine.without_own_texts(text).search(text, size=100).doc_id.tolist()


def remembering(engine: LuceneEngine, memory: Memory) -> Search:
    """Return a search whose hits memory reorders, and adds to."""

    def search(text: str) -> list[str]:
        hits = engine.search(text, size=100)
        found = memory.rerank(text, hits.doc_id.tolist(), hits.score.tolist(), recall=10)
        return [str(hit.id) for hit in found[:100]]

    return search


def ranking(engine: LuceneEngine, known: Asked) -> Search:
    """Return a search whose hits KinRanker orders, trained on known queries as they are logged."""
    some = list(known.items())[:TRAINED]
    judged = QuerySet.from_arrays(
        np.empty((sum(len(grades) for _, grades in some), 0)),
        [grade for _, grades in some for grade in grades.values()],
        qid=np.repeat(np.arange(len(some)), [len(grades) for _, grades in some]),
        doc_id=[number for _, grades in some for number in grades],
        query_columns={TEXT_COLUMN: [text for text, _ in some]},
    )
    logged = [query for query, _ in FeatureLogger(engine).log(judged, RetryingPool(2)) if query is not None]
    train = QuerySet.concat(logged)
    ranker = KinRanker(local=False, encoder=None, settings={"n_repeats": 1}).fit(train.replace(y=train.grades))

    def search(text: str) -> list[str]:
        hits, rows = engine.search_features(text, size=100)
        if not len(hits):
            return []
        group = {"qid": np.zeros(len(hits)), "doc_id": hits.doc_id, "query_columns": {TEXT_COLUMN: [text]}}
        found = QuerySet.from_arrays(rows, feature_names=engine.feature_names, **group)
        return hits.doc_id[np.argsort(-ranker.predict(found), kind="stable")].tolist()

    return search


def timed(search: Search, seconds: list[float]) -> Search:
    """Return the same search, which notes its time."""

    def call(text: str) -> list[str]:
        start = time.perf_counter()
        found = search(text)
        seconds.append(time.perf_counter() - start)
        return found

    return call


def quality(asked: Asked, search: Search) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return NDCG@10 and recall@100 of each query, relative to all relevant documents."""
    values = []
    for text, grades in asked.items():
        found = search(text)
        values.append((ndcg(found, grades), len(grades.keys() & set(found)) / len(grades)))
    gains, recalls = np.array(values).T
    return gains, recalls


def size_of(engine: LuceneEngine) -> int:
    """Return the bytes of the index in one segment."""
    path = f"/{engine.index_name}"
    engine._send("POST", f"{path}/_refresh", {}, None, 60.0)
    engine._send("POST", f"{path}/_forcemerge", {"max_num_segments": "1"}, None, 120.0)
    engine._send("POST", f"{path}/_flush", {"force": "true"}, None, 60.0)
    stats = engine._send("GET", f"{path}/_stats/store", {}, None, 60.0)
    return int(stats["_all"]["primaries"]["store"]["size_in_bytes"])
