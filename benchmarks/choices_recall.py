"""Remembered documents in a live search: recall and NDCG over the whole index with and without them.

The documents are in Elasticsearch, and searches go through the service: the first 100 hits, ranked. Two fifths of the
queries train LightGBM, which the model of choices wraps. These and two further fifths have traffic; *recurring* are the
latter, *new* are the rest, for which only similar queries can help. All queries and grades are real, users are not:
they examine rank k with probability 1/k and click by the grade; documents without a judgment attract few clicks.
Traffic is of two kinds: *engine* has the lists of this engine alone, first ten of 100 hits with some noise; *two
searches* has as many lists again of a vector search (MSRD's embeddings; for NFCorpus, latent semantic analysis), as if
that had been in use before, or in an A/B test. Recall@10 is the number of relevant documents among the first ten, as a
share of the most that there can be. ``KINRANK_ELASTICSEARCH`` is the address of a running server; without it, one is
started.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import confirmation
from benchmarks.choices_traffic import read_clicks
from benchmarks.common import data_dir, log_progress
from benchmarks.engine_msrd import MOVIES, running
from benchmarks.live_msrd import feature_sets
from examples.movies.prepare import NUMBERS, TEXT
from kinrank import KinRanker, QuerySet
from kinrank.arrays import Float32
from kinrank.datasets import simulate_clicks
from kinrank.engines import Engine, connect
from kinrank.engines._logger import FeatureLogger
from kinrank.engines.base import RetryingPool
from kinrank.engines.lucene import LuceneEngine
from kinrank.measure import compare_paired
from kinrank.memory.evidence import Evidence
from kinrank.serve import Service, Settings
from kinrank.serve._search import Searcher

OPTIONS = {"collection": ("nfcorpus", "msrd"), "queries": ("1000", "300", "3000", "all")}
TRAFFIC = ("engine", "two searches")
REMEMBERED = (0, 10)
PORT = 9295
TOP, WINDOW, N_LISTS = 10, 100, 10
DISCOUNT = 1 / np.log2(np.arange(2, TOP + 2))


class Corpus(NamedTuple):
    """Judged queries, and the vectors of documents and of these queries."""

    judged: QuerySet
    ids: np.ndarray
    documents: Float32
    queries: Float32


class Parts(NamedTuple):
    """Which queries train the wrapped ranker, have traffic besides, and are new."""

    train: np.ndarray
    recurring: np.ndarray
    new: np.ndarray


def run(collection: str = "nfcorpus", queries: str = "1000") -> dict[str, Any]:
    """Index a collection, simulate its traffic, search and measure."""
    server = os.environ.get("KINRANK_ELASTICSEARCH")
    features = confirmation.FEATURES if collection == "nfcorpus" else feature_sets()["15-features"]
    with (
        nullcontext(server) if server else running("elasticsearch", port=PORT) as address,
        connect(f"{address}/choices-recall-{collection}", features, timeout=60.0) as engine,
        tempfile.TemporaryDirectory() as work,
    ):
        assert isinstance(engine, LuceneEngine)
        corpus = index_nfcorpus(engine) if collection == "nfcorpus" else index_msrd(engine)
        if queries != "all":
            chosen = np.sort(np.random.default_rng(0).permutation(len(corpus.judged))[: int(queries)])
            corpus = corpus._replace(judged=corpus.judged[chosen], queries=corpus.queries[chosen])
        try:
            return {"collection": collection, **measured(engine, corpus, Path(work))}
        finally:
            engine.delete_index()


# --- collections -----------------------------------------------------------------------------------------------------


def index_nfcorpus(engine: LuceneEngine) -> Corpus:
    """Index NFCorpus, and describe it by latent semantic analysis."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    documents = list(confirmation.documents("nfcorpus"))
    engine.index(documents, settings=confirmation.INDEX)
    judged = confirmation.judgments("nfcorpus")
    weigh = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2)
    words = weigh.fit_transform([f"{fields['title']} {fields['text']}" for _, fields in documents])
    svd = TruncatedSVD(200, random_state=0)
    vectors = svd.fit_transform(words)
    asked = svd.transform(weigh.transform(judged.query_columns["text"].tolist()))
    return Corpus(judged, np.array([doc_id for doc_id, _ in documents]), _unit(vectors), _unit(asked))


def index_msrd(engine: LuceneEngine) -> Corpus:
    """Index MSRD's movies, and read its judgments and embeddings."""
    folder = data_dir() / "text" / "msrd"
    with gzip.open(folder / "movies-corpus.jsonl.gz", "rt") as lines:
        movies = [json.loads(line) for line in lines]
    fields = [{name: movie[name] for name in (*TEXT, *NUMBERS) if movie.get(name) is not None} for movie in movies]
    ids = np.array([movie["id"] for movie in movies])
    settings = json.loads((MOVIES / "elasticsearch.json").read_text())
    settings["mappings"]["properties"].pop("embedding", None)
    engine.index(zip(ids.tolist(), fields, strict=True), settings=settings)
    with gzip.open(folder / "movies-judgments.tsv.gz", "rt") as lines:
        next(lines)
        rows = sorted(line.rstrip("\n").split("\t") for line in lines)
    texts = {qid: text for qid, text, _, _ in rows}
    judged = QuerySet.from_arrays(
        np.zeros((len(rows), 0), dtype=np.float32),
        np.array([float(grade) for _, _, _, grade in rows]),
        qid=np.array([qid.removeprefix("qid:") for qid, _, _, _ in rows]),
        doc_id=np.array([doc_id for _, _, doc_id, _ in rows]),
        query_columns={"text": np.array(list(texts.values()))},
    )
    place = {qid: row for row, qid in enumerate((folder / "query_vectors.ids.txt").read_text().split())}
    known = np.array([qid in place for qid in judged.qid.tolist()])
    judged = judged[known]
    vectors = np.load(folder / "query_vectors.f16.npy")[[place[qid] for qid in judged.qid.tolist()]]
    return Corpus(judged, ids, _unit(np.load(folder / "doc_vectors.f16.npy")), _unit(vectors))


def _unit(vectors: np.ndarray) -> Float32:
    values = vectors.astype(np.float32)
    unit: Float32 = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9)
    return unit


# --- one collection --------------------------------------------------------------------------------------------------


def measured(engine: Engine, corpus: Corpus, work: Path, wrapped: str = "lambdamart") -> dict[str, Any]:
    """Learn from traffic of both kinds, and measure the searches of recurring and of new queries."""
    relevant = np.add.reduceat(corpus.judged.grades > 0, corpus.judged.offsets[:-1]) > 0
    corpus = corpus._replace(judged=corpus.judged[relevant], queries=corpus.queries[relevant])
    logged = QuerySet.concat(
        [found for found, _ in FeatureLogger(engine, top=WINDOW).log(corpus.judged, RetryingPool(2)) if found]
    )
    draw = np.random.default_rng(1).random(len(corpus.judged))
    qid = corpus.judged.qid
    parts = Parts(qid[draw < 0.4], qid[(draw >= 0.4) & (draw < 0.8)], qid[draw >= 0.8])
    log_progress(f"{len(qid)} queries, {len(logged)} with hits")
    train = logged[np.isin(logged.qid, parts.train)]
    had_traffic = logged[~np.isin(logged.qid, parts.new)]
    tables = {"engine": engine_lists(had_traffic), "vectors": vector_lists(corpus, parts)}
    figures: dict[str, Any] = {"queries": len(qid), "documents": len(corpus.ids)}
    for kind in TRAFFIC:
        evidence = simulated(tables["engine"], *([tables["vectors"]] if kind != "engine" else []))
        choices = KinRanker(base=f"single(learner={wrapped})", evidence=evidence, memory=False).fit(train)
        log_progress(f"{kind}: {evidence}, {'; '.join(choices.remarks())}")
        choices.save(work / kind)
        for name, asked in (("recurring", parts.recurring), ("new", parts.new)):
            rows = searched(engine, work / kind, corpus.judged[np.isin(qid, asked)])
            log_progress(f"{kind}, {name}: {rows}")
            figures[f"{kind}, {name}"] = rows
    return figures


def engine_lists(logged: QuerySet) -> QuerySet:
    """Return hits to show, best first; their scores are falling numbers."""
    scores = np.concatenate([-np.arange(size, dtype=np.float32) for size in logged.sizes.tolist()])
    return logged.replace(X=scores[:, None], feature_names=("score",))


def vector_lists(corpus: Corpus, parts: Parts) -> QuerySet:
    """Return the documents that a vector search finds for the queries with traffic."""
    judged = corpus.judged
    rows: list[tuple[str, str, float, float]] = []
    texts = {}
    assert judged.doc_id is not None
    for place in np.flatnonzero(~np.isin(judged.qid, parts.new)).tolist():
        known = slice(judged.offsets[place], judged.offsets[place + 1])
        grades = dict(zip(judged.doc_id[known].tolist(), judged.grades[known].tolist(), strict=True))
        near = np.argsort(-(corpus.documents @ corpus.queries[place]), kind="stable")[:WINDOW]
        qid = str(judged.qid[place])
        texts[qid] = judged.query_columns["text"][place]
        ids = corpus.ids[near].tolist()
        rows += [(qid, doc_id, -float(rank), grades.get(doc_id, 0.0)) for rank, doc_id in enumerate(ids)]
    names, documents, scores, values = zip(*rows, strict=True)
    found = QuerySet.from_arrays(
        np.array(scores, dtype=np.float32)[:, None], np.array(values), qid=np.array(names), doc_id=np.array(documents)
    )
    return found.replace(query_columns={"text": np.array([texts[qid] for qid in found.qid.tolist()])})


def simulated(*lists: QuerySet) -> Evidence:
    """Return the evidence of simulated users of several searches."""
    logs, sessions = [], 0
    for seed, shown in enumerate(lists):
        log = simulate_clicks(shown, shown.X[:, 0], n_lists=N_LISTS, seed=seed)
        session = pa.array(log["session"].to_numpy() + sessions)
        logs.append(log.set_column(log.column_names.index("session"), "session", session))
        sessions += len(session)
    return read_clicks(pa.concat_tables(logs), "swaps")[2]


def searched(engine: Engine, model: Path, judged: QuerySet) -> dict[str, Any]:
    """Search all queries, and return recall@10 and NDCG@10 of the engine and of choices with and without memory."""
    values: dict[str, list[tuple[float, float]]] = {}
    added = []
    for most in REMEMBERED:
        settings = Settings(deadline=60.0, engine_seconds=60.0, remembered=most)
        with Service({"choices": model}, settings=settings) as service:
            searcher = Searcher(service, engine)
            for query in judged:
                result = searcher.search(str(query.query_columns["text"][0]), window=WINDOW)
                grades = dict(zip(query.doc_id.tolist(), query.grades.tolist(), strict=True))
                if most == 0:
                    values.setdefault("engine", []).append(quality(result.engine_ids, grades))
                values.setdefault("with" if most else "without", []).append(quality(result.ranking.ids, grades))
                added.append(len(result.remembered))
    arrays = {name: np.array(each) for name, each in values.items()}
    figures: dict[str, Any] = {
        name: {"recall@10": round(float(recall), 4), "NDCG@10": round(float(ndcg), 4)}
        for name, (recall, ndcg) in ((name, each.mean(axis=0)) for name, each in arrays.items())
    }
    p = [compare_paired(arrays["without"][:, column], arrays["with"][:, column]).p for column in (0, 1)]
    figures["p of recall@10, NDCG@10"] = [float(f"{value:.2g}") for value in p]
    figures["remembered documents per query"] = round(float(np.mean(added[len(judged) :])), 2)
    return figures


def quality(ids: list[str], grades: Mapping[str, float]) -> tuple[float, float]:
    """Return recall@10 and NDCG@10 of a list, where documents without a grade count as not relevant.

    Examples
    --------
    >>> quality(["a", "b"], {"b": 1.0, "c": 1.0})
    (0.5, 0.38685280723454163)
    """
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:TOP]
    found = [grades.get(doc_id, 0.0) for doc_id in ids[:TOP]]
    recall = sum(grade > 0 for grade in found) / len(best)
    return recall, float(found @ DISCOUNT[: len(found)] / (best @ DISCOUNT[: len(best)]))
