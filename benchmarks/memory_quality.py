"""What memory of judged queries gains, next to its rivals: split at random, by family, officially and in time.

All methods rerank the same candidates; trees are LightGBM's with the defaults of kinrank.

- *LightGBM*: the features alone;
- *KinRanker*: with its defaults, and what people chose as evidence (only in time, where queries recur);
- *choices*: LightGBM, with what people chose for the same query around it (only in time);
- *evidence columns*: LightGBM with the earlier looks, choices and rate of choices of the same query (only in time);
- *everyone*: LightGBM with what all training queries say of a document, in ten folds;
- *memory columns*: LightGBM with all columns of `QueryMemory`, in ten folds;
- *memory family folds*: the same in folds that keep families together;
- *one column*: LightGBM with the mean grade of the k nearest queries, weighted by similarity; k is the one whose column
  ranks training queries best;
- *BM25*: over the texts of documents, with stems; *BM25 extended*: over those and the texts of the training queries
  for which a document was relevant, in one field; *BM25 two fields*: the sum of BM25 of both, each in a field of its
  own; *extended field*: LightGBM with BM25 of the texts of queries, in ten folds. The formula is Lucene's, computed
  here: no engine is needed;
- *ColBERT*, *monoT5*, *list-in-T5*: the rankers whose scores are features of LongEval and acordar2, each alone;
- *boost*: earlier choices of the same query multiplied into BM25, as Keller et al. (ECIR 2025) do; into the
  probability of monoT5 in the slice t2, which has no run of BM25.

In time, columns of a training query come from earlier times alone, in place of folds. If test queries are about other
movies, folds are by movie, too, and memory knows the movie.

Split by *meaning*, families are near-duplicates by letters or by the vectors of MiniLM, and further methods use these:

- *KinRanker MiniLM*, *KinRanker static*: with its defaults and an encoder, MiniLM or WordLlama's table of words;
- *field*: LightGBM with the known questions as a field of the document (BM25, as *extended field*); *nearest*: with the
  largest cosine with one of them; *field + nearest*: with both;
- *prototype letters*, *prototype*: LightGBM with columns of kin by letters, and by both, computed without kinrank;
- *dense*: each of these with the cosine of query and document as a feature.

*random* and *family* are four folds; families are near-duplicate texts, on MSRD all queries about a movie. *official*
are the test queries or folds of the collection, by movie on MSRD. *time* are the slices t2 to t4 of LongEval, and the
last third of the looks of each pair on GOV.UK.

Every row has NDCG@10, its difference to LightGBM with p by family, the difference to *everyone*, the differences for
*near* queries (a known query has similarity .6 or more) and *far* ones, and, in time, for *recurring* and *new* ones.
*All judgments* is NDCG@10 with the ideal of all judgments, also of documents that are not among the candidates; a query
without a relevant candidate counts 0 in both. *Judged*: only judged documents are ranked. *Unchosen*: only documents
that were relevant for no known query are ranked. Both leave out queries without a relevant document among these. MSRD
and mwmbl have the cosine of MiniLM vectors among the features of all methods; the other collections have no vectors.

Finished parts are kept in ``benchmarks/results/memory_quality``: delete a file to measure it again. ``--folds`` is how
many folds of each split are measured, ``--methods`` a list with commas, ``--measure no`` reports on what there is.
``--quick`` takes 300 queries of four collections, one fold each, and keeps nothing. NFCorpus and SciFact are logged
from Elasticsearch by ``python -m benchmarks confirmation`` or here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import snowballstemmer
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from benchmarks import memory_meaning as meaning
from benchmarks.common import log_progress
from benchmarks.memory_collections import (
    FAMILY,
    FIRST_STAGE,
    JUDGED,
    MEANING,
    READERS,
    RUNS,
    SPLITS,
    TIME,
    Collection,
    even_folds,
    read,
)
from kinrank import KinRanker, QuerySet
from kinrank.arrays import Float64, Int64
from kinrank.data.split import fold_of_query
from kinrank.data.texts import TEXT
from kinrank.kin.known import NEIGHBORS
from kinrank.kin.letters import FAMILY as NEAR
from kinrank.kin.letters import QueryIndex, nearest_similarity
from kinrank.measure import DCG, NDCG, compare_paired
from kinrank.memory.columns import N_FOLDS, PARTS, QueryMemory
from kinrank.memory.evidence import Evidence
from kinrank.rankers import RANKERS
from kinrank.rankers.kin._chosen import WithChoices

LIGHTGBM = "single(learner=lambdamart)"
RESULTS = Path(__file__).parent / "results" / "memory_quality"
QUICK = ("stackfaq", "metatool", "acordar2", "looks")
QUICK_QUERIES = 300
FEWEST = 30
"""Queries from which on a mean is shown."""
NEIGHBOR_NUMBERS = (5, 10, 20, NEIGHBORS)
_K1, _B = 1.2, 0.75
_BOOST = 100.0


# --- a task ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """Queries to learn from and to rank.

    Attributes
    ----------
    collection
        The collection.
    train, test
        The queries; grades to train on are whole.
    known
        The queries that memory knows: those of `train`, in time with earlier ones before them.
    remembered
        The same with the documents that memory knows.
    part
        The fold, or the time, of each known query.
    group
        The query column whose values are new in `test`; None if there is none.
    """

    collection: Collection
    train: QuerySet
    test: QuerySet
    known: QuerySet
    remembered: QuerySet
    part: Int64
    group: str | None = None

    @classmethod
    def of(cls, collection: Collection, split: str, fold: int) -> Task:
        """Return the task of a fold."""
        queries, number = collection.queries, collection.folds(split)
        group = None if split == "random" else collection.group
        if split == "time":
            when = queries.query_columns[TIME]
            earlier = when < fold + 2
            known, train = queries[earlier], queries[earlier & (when > 0)]
            part = known.query_columns[TIME].astype(np.int64)
        else:
            known = train = queries[number != fold]
            part = fold_of_query(known, N_FOLDS, group=group, seed=1)
        remembered = known if collection.remembered is None else collection.remembered[earlier]
        whole = train.replace(y=np.round(train.grades))
        return cls(collection, whole, queries[number == fold], known, remembered, part, group)

    @property
    def evidence(self) -> Evidence | None:
        """What people chose before the test queries; None if this is not in time, or not known."""
        if not self.in_time or self.collection.evidence is None:
            return None
        return self.collection.evidence(int(self.test.query_columns[TIME][0]))

    @property
    def in_time(self) -> bool:
        """Whether only earlier queries count."""
        return TIME in self.known.query_columns

    @property
    def train_rows(self) -> slice:
        """The rows of `train` among those of `known`."""
        return slice(self.known.n_rows - self.train.n_rows, None)

    @cached_property
    def memory_columns(self) -> tuple[tuple[str, ...], Any, Any]:
        """Names of the columns of memory, and the columns of `train` and `test`."""
        memory = QueryMemory.of(self.remembered, self.collection.keys)
        made = memory.cross_fitted(self.part, self.known, in_time=self.in_time)
        return memory.names, made[self.train_rows], memory.columns(self.test)

    @cached_property
    def documents(self) -> tuple[int, Int64, Int64, Int64]:
        """How many documents there are, and those of `known`, `test` and `remembered`; those with texts come first."""
        place = {name: number for number, name in enumerate(self.collection.texts)}
        numbers = [
            np.array([place.setdefault(name, len(place)) for name in queries.doc_id.astype(np.str_).tolist()])
            for queries in (self.known, self.test, self.remembered)
        ]
        return len(place), *numbers

    def chosen(self, counted: NDArray[np.bool_] | None = None) -> sp.csr_matrix:
        """Return the grades of the counted known queries as shares of the best one; shape (known, documents)."""
        n_documents, *_, document = self.documents
        good = self.remembered.grades / max(self.remembered.grades.max(), 1.0)
        rows = good > 0
        if counted is not None:
            rows &= np.repeat(counted, self.remembered.sizes)
        shape = len(self.remembered), n_documents
        return sp.csr_matrix((good[rows], (self.remembered.query_of_row[rows], document[rows])), shape=shape)

    def cross_fitted(self, n_columns: int, columns: ColumnMaker) -> tuple[Float64, Float64]:
        """Return columns of `train`, made from other folds or earlier times, and of `test`."""
        _, document, of_test, _ = self.documents
        made = np.zeros((self.known.n_rows, n_columns))
        for value in np.unique(self.part):
            own = self.part == value
            counted = self.part < value if self.in_time else ~own
            rows = np.repeat(own, self.known.sizes)
            made[rows] = columns(counted, self.known[own], document[rows])
        return made[self.train_rows], columns(np.ones(len(self.known), dtype=np.bool_), self.test, of_test)


ColumnMaker = Callable[[NDArray[np.bool_], QuerySet, Int64], Float64]
"""Makes columns from the counted known queries, for queries with the numbers of the documents of their rows."""


# --- methods ---------------------------------------------------------------------------------------------------------


def trees(task: Task, train: Any = None, test: Any = None) -> Float64:
    """Return the scores of LightGBM, with further columns."""
    ranker = RANKERS.make(LIGHTGBM).fit(joined(task.train, train))
    return np.asarray(ranker.predict(joined(task.test, test)), dtype=np.float64)


def joined(queries: QuerySet, columns: Any) -> QuerySet:
    """Return queries with further features."""
    if columns is None:
        return queries
    names = (*queries.feature_names, *(f"memory {number}" for number in range(columns.shape[1])))
    return queries.replace(X=np.hstack([queries.X, columns]).astype(np.float32), feature_names=names)


def kin(task: Task) -> Float64:
    """Return the scores of KinRanker."""
    settings = {"keys": task.collection.keys, "group_column": task.group, "evidence": task.evidence}
    if task.in_time:
        ranker = KinRanker(**settings, time_column=TIME).fit(task.known.replace(y=np.round(task.known.grades)))
    else:
        ranker = KinRanker(**settings).fit(task.train)
    for line in ranker.remarks():
        log_progress(line)
    return ranker.predict(task.test)


def choices(task: Task) -> Float64 | None:
    """Return the scores of today's choices."""
    if task.evidence is None:
        return None
    return WithChoices(RANKERS.make(LIGHTGBM).fit(task.train), task.evidence).fit(task.train).predict(task.test)


def evidence_columns(task: Task) -> Float64 | None:
    """Return the scores of LightGBM with what people looked at and chose for the same query before."""
    evidence = task.collection.evidence
    if evidence is None:
        return None

    def columns(queries: QuerySet) -> Float64:
        found = np.zeros((queries.n_rows, 3))
        for when in np.unique(queries.query_columns[TIME]):
            own = queries.query_columns[TIME] == when
            looks, chosen = evidence(int(when)).totals(queries[own])
            found[np.repeat(own, queries.sizes)] = np.column_stack([looks, chosen, chosen / (looks + 1)])
        return found

    return trees(task, columns(task.train), columns(task.test))


def memory(task: Task, *parts: str) -> Float64:
    """Return the scores of LightGBM with some parts of the columns of memory."""
    names, train, test = task.memory_columns
    endings = tuple(name for part in parts for name in PARTS[part])
    used = [name.endswith(endings) for name in names]
    return trees(task, train[:, used], test[:, used])


def memory_by_family(task: Task) -> Float64 | None:
    """Return the scores of LightGBM with all columns of memory, in folds that keep families together."""
    if task.in_time:
        return None
    part = even_folds(task.known.query_columns[FAMILY], N_FOLDS, seed=1)
    return memory(replace(task, part=part), *PARTS)


def one_column(task: Task) -> Float64:
    """Return the scores of LightGBM with the mean grade of the k nearest queries, weighted by similarity."""
    index, good = QueryIndex().fit(task.known.query_columns[TEXT].astype(np.str_).tolist()), task.chosen()

    def means(counted: NDArray[np.bool_], queries: QuerySet, document: Int64) -> Float64:
        terms = index.describe(queries.query_columns[TEXT].astype(np.str_).tolist())
        places, similarities = index.nearest(terms, max(NEIGHBOR_NUMBERS), counted)
        found = []
        for k in NEIGHBOR_NUMBERS:
            query, rank = np.nonzero(places[:, :k] >= 0)
            shape = len(queries), len(task.known)
            weights = sp.csr_matrix((similarities[query, rank], (query, places[query, rank])), shape=shape)
            total = np.maximum(similarities[:, :k].sum(axis=1), 1e-9)[queries.query_of_row]
            found.append(np.asarray((weights @ good)[queries.query_of_row, document]).ravel() / total)
        return np.column_stack(found)

    train, test = task.cross_fitted(len(NEIGHBOR_NUMBERS), means)
    quality = [(NDCG @ 10).mean(column, task.train.grades, task.train.offsets) for column in train.T]
    best = int(np.argmax(quality))
    log_progress(f"one column: {NEIGHBOR_NUMBERS[best]} neighbors")
    return trees(task, train[:, [best]], test[:, [best]])


_STEMMER = snowballstemmer.stemmer("english")
_stem = cache(_STEMMER.stemWord)
_words = CountVectorizer(stop_words=list(ENGLISH_STOP_WORDS)).build_analyzer()


def stems(text: str) -> list[str]:
    """Return the stems of the words of a text."""
    return [_stem(word) for word in _words(text)]


@cache
def counted_words(collection: Collection) -> tuple[CountVectorizer, sp.csr_matrix]:
    """Return the words of documents and queries, and how often each document has them."""
    queries = collection.queries.query_columns[TEXT].astype(np.str_).tolist()
    vectorizer = CountVectorizer(analyzer=stems).fit([*collection.texts.values(), *queries])
    texts = list(collection.texts.values())
    return vectorizer, vectorizer.transform(texts) if texts else sp.csr_matrix((0, len(vectorizer.vocabulary_)))


def bm25(counts: sp.csr_matrix) -> sp.csr_matrix:
    """Return the weight of each word in each document: Lucene's BM25."""
    length = np.asarray(counts.sum(axis=1)).ravel()
    weights = counts.tocsr().astype(np.float64)
    present = max((length > 0).sum(), 1)
    in_documents = np.bincount(weights.indices, minlength=weights.shape[1])
    idf = np.log1p((present - in_documents + 0.5) / (in_documents + 0.5))
    norm = np.repeat(_K1 * (1 - _B + _B * length / max(length.sum() / present, 1e-9)), np.diff(weights.indptr))
    weights.data = weights.data / (weights.data + norm) * idf[weights.indices]
    return weights


def text_scores(task: Task, counts: sp.csr_matrix, queries: QuerySet, document: Int64) -> Float64:
    """Return the BM25 of each row."""
    asked = counted_words(task.collection)[0].transform(queries.query_columns[TEXT].astype(np.str_).tolist())
    weights, scores = bm25(counts), np.zeros(queries.n_rows)
    for number in range(len(queries)):
        rows = slice(queries.offsets[number], queries.offsets[number + 1])
        scores[rows] = weights[document[rows]] @ asked[number].toarray().ravel()
    return scores


def query_words(task: Task, counted: NDArray[np.bool_] | None = None) -> sp.csr_matrix:
    """Return how often each document has each word in the texts of the counted queries for which it was relevant."""
    known = counted_words(task.collection)[0].transform(task.known.query_columns[TEXT].astype(np.str_).tolist())
    return ((task.chosen(counted) > 0).astype(np.float64).T @ known).tocsr()


def words_of_documents(task: Task) -> sp.csr_matrix:
    """Return how often each document has each word in its text."""
    counts = counted_words(task.collection)[1]
    missing = task.documents[0] - counts.shape[0]
    return sp.vstack([counts, sp.csr_matrix((missing, counts.shape[1]))]).tocsr()


def text_alone(task: Task) -> Float64 | None:
    """Return BM25 over the texts of documents."""
    if not task.collection.texts:
        return None
    return text_scores(task, words_of_documents(task), task.test, task.documents[2])


def extended(task: Task) -> Float64:
    """Return BM25 over the texts of documents and of the queries for which they were relevant."""
    return text_scores(task, words_of_documents(task) + query_words(task), task.test, task.documents[2])


def two_fields(task: Task) -> Float64 | None:
    """Return the sum of BM25 over the texts of documents and over the queries for which they were relevant."""
    if not task.collection.texts:
        return None
    fields = words_of_documents(task), query_words(task)
    return np.sum([text_scores(task, counts, task.test, task.documents[2]) for counts in fields], axis=0)


def known_questions(task: Task) -> tuple[Float64, Float64]:
    """Return BM25 over the queries for which documents were relevant, for `train` and `test`, in ten folds."""

    def scores(counted: NDArray[np.bool_], queries: QuerySet, document: Int64) -> Float64:
        return text_scores(task, query_words(task, counted), queries, document)[:, None]

    return task.cross_fitted(1, scores)


def field_and_nearest(task: Task) -> Float64:
    """Return the scores of LightGBM with the known questions as a field, and the nearest one by vectors."""
    columns = zip(known_questions(task), meaning.nearest_question(task), strict=True)
    return trees(task, *map(np.hstack, columns))


def feature(task: Task, name: str) -> Float64 | None:
    """Return a feature as scores; candidates without it come last."""
    if name not in task.test.feature_names:
        return None
    values = task.test.X[:, task.test.feature_names.index(name)].astype(np.float64)
    return np.nan_to_num(values, nan=np.nanmin(values) - 1)


def boost(task: Task) -> Float64 | None:
    """Return the scores of the first stage, multiplied if the same query chose the document before."""
    if FIRST_STAGE not in task.test.doc_columns:
        return None
    before = {
        (text, document)
        for text, document, grade in zip(*_cells(task.remembered), task.remembered.grades.tolist(), strict=True)
        if grade > 0
    }
    chosen = np.array([cell in before for cell in zip(*_cells(task.test), strict=True)])
    return task.test.doc_columns[FIRST_STAGE] * np.where(chosen, _BOOST, 1.0)


def _cells(queries: QuerySet) -> tuple[list[str], list[str]]:
    assert queries.doc_id is not None
    return queries.query_columns[TEXT][queries.query_of_row].tolist(), queries.doc_id.tolist()


METHODS: dict[str, Callable[[Task], Float64 | None]] = {
    "LightGBM": trees,
    "KinRanker": kin,
    "choices": choices,
    "evidence columns": evidence_columns,
    "everyone": lambda task: memory(task, "everyone"),
    "memory columns": lambda task: memory(task, *PARTS),
    "memory family folds": memory_by_family,
    "one column": one_column,
    "BM25": text_alone,
    "BM25 extended": extended,
    "BM25 two fields": two_fields,
    "extended field": lambda task: trees(task, *known_questions(task)),
    **{name: lambda task, name=name: feature(task, name) for name in RUNS},
    "boost": boost,
}
"""Each returns the scores of the test queries; None if it does not apply to the collection."""

WITH_ENCODER: dict[str, Callable[[Task], Float64 | None]] = {
    f"KinRanker {encoder}": lambda task, encoder=encoder: kin(meaning.encoded_by(encoder, task))
    for encoder in meaning.ENCODERS
}
"""KinRanker with vectors of each encoder, in any split."""
_BY_MEANING: dict[str, Callable[[Task], Float64 | None]] = {
    "LightGBM": trees,
    "field": METHODS["extended field"],
    "nearest": lambda task: trees(task, *meaning.nearest_question(task)),
    "field + nearest": field_and_nearest,
    "prototype letters": lambda task: meaning.prototype(task, vectors=False),
    "prototype": lambda task: meaning.prototype(task, vectors=True),
    "KinRanker": kin,
    **WITH_ENCODER,
}
METHODS_OF_MEANING = _BY_MEANING | {
    f"dense {name}": lambda task, method=method: method(meaning.dense(task)) if task.collection.vectors else None
    for name, method in _BY_MEANING.items()
}
"""The methods of the split by meaning."""
COMPARED = (
    ("KinRanker MiniLM", "KinRanker"),
    ("KinRanker MiniLM", "KinRanker static"),
    ("KinRanker MiniLM", "prototype"),
    ("KinRanker MiniLM", "field + nearest"),
    ("KinRanker MiniLM", "nearest"),
)
"""Pairs whose difference is tested, split by meaning; with the dense feature on both sides, too."""

OPTIONS = {
    "collection": ("all", *READERS),
    "split": ("all", *SPLITS),
    "methods": "all",
    "folds": ("all", "1", "2", "3"),
    "measure": ("yes", "no"),
    "quick": False,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def run(
    collection: str = "all",
    split: str = "all",
    methods: str = "all",
    folds: str = "all",
    measure: str = "yes",
    quick: bool = False,
) -> dict[str, Any]:
    """Measure what is missing, and print one table."""
    names = [name for name in (QUICK if quick else READERS) if collection in ("all", name)]
    by_meaning = split == MEANING
    wanted = list(METHODS_OF_MEANING if by_meaning else METHODS) if methods == "all" else methods.split(",")
    known = METHODS_OF_MEANING if by_meaning else {**METHODS, **WITH_ENCODER}
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise SystemExit(f"--methods has {unknown}; choose from {', '.join(known)}")
    encoders = [each for each in meaning.ENCODERS if by_meaning or any(each in method for method in wanted)]
    rows: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as nothing:
        folder = Path(nothing) if quick else RESULTS
        for name in names:
            read_queries = read(name).sample(QUICK_QUERIES) if quick else read(name)
            read_queries = meaning.with_queries(name, read_queries, encoders)
            if by_meaning:
                read_queries = meaning.by_meaning(name, read_queries)
            for each in read_queries.splits:
                if split != each and (split != "all" or each == MEANING):
                    continue
                most = 1 if quick else N_MOST if folds == "all" else int(folds)
                parts = [
                    measured(folder / f"{name}-{each}", read_queries, each, fold, wanted, measure == "yes")
                    for fold in range(min(int(read_queries.folds(each).max()) + 1, most))
                ]
                rows += [{"collection": name, "split": each, **row} for row in report(parts)]
                if by_meaning:
                    tests += [{"collection": name, **row} for row in compared(parts)]
    print(table(rows))
    if tests:
        print(
            *(
                f"{each['collection']}: {each['one']} - {each['other']}: {each['gain']:+.4f}, p = {each['p']:.2g}"
                for each in tests
            ),
            sep="\n",
        )
    return {"rows": rows} | ({"tests": tests} if tests else {})


N_MOST = 100
Part = tuple[Task, dict[str, Float64]]


def measured(
    folder: Path, collection: Collection, split: str, fold: int, methods: Iterable[str], missing: bool
) -> Part:
    """Return the scores of each method in a fold; measure those that are missing, and keep them."""
    task, scores = Task.of(collection, split, fold), {}
    for method in methods:
        make = {**METHODS_OF_MEANING, **METHODS}[method]
        file = folder / f"{fold} {method}.npz"
        if not file.exists() and missing:
            start = time.process_time()
            made = make(task)
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(f".{os.getpid()}.npz")
            np.savez(partial, scores=np.empty(0) if made is None else made, qid=task.test.qid.astype(np.str_))
            partial.rename(file)
            if made is not None:
                log_progress(f"{folder.name} {fold} {method}: {time.process_time() - start:.0f} s of CPU")
        if file.exists():
            stored = np.load(file)
            if not np.array_equal(stored["qid"], task.test.qid.astype(np.str_)):
                raise SystemExit(f"{file} is of other queries: delete {folder} and run again")
            if len(stored["scores"]):
                scores[method] = stored["scores"]
    return task, scores


# --- reporting -------------------------------------------------------------------------------------------------------


def report(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return a row for each method, over the folds in which LightGBM and it are measured."""
    rows = []
    facts = [facts_of(task) for task, _ in parts]
    values = [
        {name: values_of(task, fact, each) for name, each in scores.items()}
        for (task, scores), fact in zip(parts, facts, strict=True)
    ]
    for name in {**METHODS, **METHODS_OF_MEANING}:
        places = [number for number, each in enumerate(values) if name in each and "LightGBM" in each]
        if not places:
            continue
        own = {key: np.concatenate([values[i][name][key] for i in places]) for key in values[places[0]][name]}
        base = {key: np.concatenate([values[i]["LightGBM"][key] for i in places]) for key in own}
        fact = {key: np.concatenate([facts[i][key] for i in places]) for key in QUERY_FACTS}
        tested = ~np.isnan(own["NDCG@10"])
        row: dict[str, Any] = {"method": name, "folds": len(places), "queries": int(tested.sum())}
        row |= {key: _rounded(np.nanmean(each)) for key, each in own.items() if (~np.isnan(each)).sum() >= FEWEST}
        if name != "LightGBM":
            found = compare_paired(own["NDCG@10"], base["NDCG@10"], groups=fact["family"])
            row |= {"gain": _rounded(found.mean_difference), "p": float(f"{found.p:.2g}")}
            if all("everyone" in values[i] for i in places) and name != "everyone":
                everyone = np.concatenate([values[i]["everyone"]["NDCG@10"] for i in places])
                over = compare_paired(own["NDCG@10"], everyone, groups=fact["family"])
                row |= {"over everyone": _rounded(over.mean_difference), "p over everyone": float(f"{over.p:.2g}")}
            gain = own["NDCG@10"] - base["NDCG@10"]
            for label, kept in (
                ("near", fact["near"]),
                ("far", ~fact["near"]),
                ("recurring", fact["recurring"]),
                ("new", ~fact["recurring"] & fact["recurring"].any()),
            ):
                if (kept & tested).any():
                    row[label] = _rounded(gain[kept & tested].mean())
                    row[f"{label} queries"] = int((kept & tested).sum())
        rows.append(row)
    return rows


def compared(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the difference of each pair of methods to be tested, and its p by family."""
    rows = []
    for one, other in [tuple(f"{kind}{name}" for name in pair) for kind in ("", "dense ") for pair in COMPARED]:
        both = [(task, scores) for task, scores in parts if one in scores and other in scores]
        if both:
            values = [
                np.concatenate(
                    [
                        task.collection.measure.per_query(scores[name], task.test.grades, task.test.offsets)
                        for task, scores in both
                    ]
                )
                for name in (one, other)
            ]
            family = np.concatenate([task.test.query_columns[FAMILY] for task, _ in both])
            found = compare_paired(*values, groups=family)
            rows.append(
                {"one": one, "other": other, "gain": _rounded(found.mean_difference), "p": float(f"{found.p:.2g}")}
            )
    return rows


QUERY_FACTS = ("family", "near", "recurring")


def facts_of(task: Task) -> dict[str, NDArray[Any]]:
    """Return what is known of each test query, and of each candidate."""
    test, known = task.test, task.known
    texts = known.query_columns[TEXT].astype(np.str_)
    _, _, of_test, document = task.documents
    return {
        "family": test.query_columns[FAMILY].astype(np.str_),
        "near": nearest_similarity(test.query_columns[TEXT], texts) >= NEAR,
        "recurring": np.isin(test.query_columns[TEXT].astype(np.str_), texts) & task.in_time,
        "unchosen": ~np.isin(of_test, document[task.remembered.grades > 0]),
    }


def values_of(task: Task, fact: dict[str, NDArray[Any]], scores: Float64) -> dict[str, Float64]:
    """Return the values of each test query by each measure."""
    test, measure = task.test, task.collection.measure
    values = {"NDCG@10": measure.per_query(scores, test.grades, test.offsets)}
    ideal = task.collection.ideal
    if ideal is not None:
        reached = (DCG @ 10)(no_relevant=0).per_query(scores, test.grades, test.offsets)
        position = {qid: number for number, qid in enumerate(task.collection.queries.qid.tolist())}
        values["all judgments"] = reached / ideal[[position[qid] for qid in test.qid.tolist()]]
    shown = {"unchosen": fact["unchosen"]}
    if JUDGED in test.doc_columns:
        shown["judged"] = test.doc_columns[JUDGED]
    for name, rows in shown.items():
        weight = rows.astype(np.float64)
        values[name] = measure(no_relevant="skip").per_query(scores, test.grades, test.offsets, sample_weight=weight)
    return values


def _rounded(value: Any) -> float:
    return round(float(value), 4)


SHOWN = (
    "method",
    "queries",
    "NDCG@10",
    "gain",
    "p",
    "over everyone",
    "near",
    "far",
    "recurring",
    "new",
    "all judgments",
    "judged",
    "unchosen",
)
SIGNED = ("gain", "over everyone", "near", "far", "recurring", "new")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as one table in Markdown."""
    lines = [" | ".join(("| collection, split", *SHOWN)) + " |", "|---" * (len(SHOWN) + 1) + "|"]
    for row in rows:
        cells = [f"{row['collection']}, {row['split']}"]
        for key in SHOWN:
            value = row.get(key, "")
            if isinstance(value, float):
                value = f"{value:.2g}" if key == "p" else f"{value:+.4f}" if key in SIGNED else f"{value:.4f}"
            if key in ("near", "far", "recurring", "new") and value:
                value = f"{value} ({row[f'{key} queries']})"
            cells.append(str(value))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
