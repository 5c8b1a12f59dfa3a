"""The collections of ``python -m benchmarks memory_quality``, and how each is split into training and test queries.

Every set of queries has texts, document ids and the query column *family*: near-duplicate texts, or the movie on MSRD.
Collections in time also have the query column *time*: 0 is known and never trained on.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from urllib.parse import urlparse

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import data_dir, judged_text, msrd
from benchmarks.confirmation import all_logged, documents, judgments
from benchmarks.encoders import msrd_texts
from kinrank import QuerySet
from kinrank.arrays import Float64, Int64
from kinrank.data.split import fold_of_query
from kinrank.data.texts import TEXT
from kinrank.kin.letters import QueryIndex
from kinrank.measure import DCG, NDCG
from kinrank.measure.measures import Ndcg
from kinrank.memory.evidence import Evidence
from reproduction.data_folder import query_set

N_FOLDS = 4
FAMILY, TIME, SITE, JUDGED, FIRST_STAGE = "family", "time", "site", "judged", "first_stage"
_SHORTEST_QUESTION = 5
MEANING = "meaning"
SPLITS = ("random", "family", "official", "time", MEANING)


@dataclass(frozen=True, eq=False)
class Collection:
    """Judged queries, and what is known of their documents.

    Attributes
    ----------
    queries
        The queries with their candidates.
    texts
        The text of each document; empty if there are none.
    fold
        The official fold of each query, from 0; -1 is only for training.
    ideal
        The DCG@10 of the best order of all judgments of a query, also of documents that are not among its candidates.
    keys
        Columns of documents that memory knows, too.
    group
        The query column of things that are new in test queries of the family and official splits, such as movies: it is
        passed to the rankers that take one.
    measure
        The measure.
    evidence
        Looks and choices before a time.
    remembered
        The same queries with the documents that memory knows, if those are not the candidates.
    vectors
        The vector of each document, if vectors are measured.
    """

    queries: QuerySet
    texts: Mapping[str, str] = field(default_factory=dict)
    fold: Int64 | None = None
    ideal: Float64 | None = None
    keys: tuple[str, ...] = ()
    group: str | None = None
    measure: Ndcg = NDCG @ 10
    evidence: Callable[[int], Evidence] | None = None
    remembered: QuerySet | None = None
    vectors: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that it can have."""
        if TIME in self.queries.query_columns:
            return ("time",)
        return ("random", "family", MEANING) if self.fold is None else ("random", "family", "official", MEANING)

    def folds(self, split: str) -> Int64:
        """Return the fold of each query in which it is tested; -1 if in none."""
        queries = self.queries
        if split == "time":
            return np.maximum(queries.query_columns[TIME].astype(np.int64) - 2, -1)
        if split == "official":
            assert self.fold is not None
            return self.fold
        if split in ("family", MEANING):
            return even_folds(queries.query_columns[FAMILY], N_FOLDS)
        return fold_of_query(queries, N_FOLDS, seed=0)

    def sample(self, n_queries: int) -> Collection:
        """Return some queries of each time."""
        time = self.queries.query_columns.get(TIME, np.zeros(len(self.queries)))
        rng = np.random.default_rng(0)
        kept = np.zeros(len(time), dtype=np.bool_)
        for value in np.unique(time):
            kept[rng.permutation(np.flatnonzero(time == value))[:n_queries]] = True
        fold = None if self.fold is None else self.fold[kept]
        ideal = None if self.ideal is None else self.ideal[kept]
        remembered = None if self.remembered is None else self.remembered[kept]
        return replace(self, queries=self.queries[kept], fold=fold, ideal=ideal, remembered=remembered)


def even_folds(group: NDArray[Any], n_folds: int, seed: int = 0) -> Int64:
    """Return folds of whole groups, as even as possible; the smallest fold is 0, and a giant group is in the last one.

    Examples
    --------
    >>> np.bincount(even_folds(np.array(["a"] * 6 + ["b", "c", "d", "d"]), 3)).tolist()
    [2, 2, 6]
    """
    number, sizes = np.unique(group, return_inverse=True, return_counts=True)[1:]
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    filled, fold = np.zeros(n_folds, dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    for one in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold[one] = filled.argmin()
        filled[fold[one]] += sizes[one]
    place = np.argsort(np.argsort(filled, kind="stable"))
    return place[fold[number]]


def best_dcg(grades: list[NDArray[Any]]) -> Float64:
    """Return the DCG@10 of the best order of the judgments of each query."""
    sizes = [len(each) for each in grades]
    values = np.concatenate(grades).astype(np.float64)
    return (DCG @ 10).per_query(values, values, np.r_[0, np.cumsum(sizes)])


def with_family(queries: QuerySet) -> QuerySet:
    """Return queries with their families: near-duplicates of texts, and of those, so that no pair is split."""
    one, two = QueryIndex().fit(queries.query_columns[TEXT].astype(np.str_).tolist()).near_pairs()
    near = sp.coo_array((np.ones(len(one)), (one, two)), shape=(len(queries), len(queries)))
    family = sp.csgraph.connected_components(near, directed=False)[1]
    return queries.replace(query_columns={**queries.query_columns, FAMILY: family})


# --- judged collections ----------------------------------------------------------------------------------------------


def candidates(name: str) -> Collection:
    """Read GOV.UK, StackFAQ or MetaTool: the first 100 documents by text."""
    stored = np.load(data_dir() / "real" / f"{name}-candidates.npz")
    queries = QuerySet.from_arrays(
        stored["X"],
        stored["y"],
        qid=np.repeat(stored["qid"], np.diff(stored["offsets"])),
        doc_id=stored["doc_id"].astype(np.str_),
        feature_names=stored["names"].tolist(),
        query_columns={TEXT: stored["text"], FAMILY: stored["family"]},
    )
    texts = {str(number): text for number, text in enumerate(TEXTS_OF[name]())}
    return Collection(queries, texts, ideal=best_dcg([np.ones(n) for n in stored["n_relevant"]]))


def govuk_texts() -> list[str]:
    """Return the words in the addresses of the pages."""
    with (data_dir() / "real" / "govuk" / "search_check_results.csv").open(encoding="utf-8") as lines:
        pages = dict.fromkeys(row["Page"] for row in csv.DictReader(lines))
    return [page.replace("/", " ").replace("-", " ") for page in pages]


def stackfaq_texts() -> list[str]:
    """Return the answers."""
    stored = json.loads((data_dir() / "real" / "stackfaq" / "stackExchange-FAQ.json").read_text(encoding="utf-8"))
    answers = [pair["answer"] for pair in stored["root"]["qapair"]]
    return [str(text) for answer in answers for text in (answer if isinstance(answer, list) else [answer])]


def metatool_texts() -> list[str]:
    """Return the names and descriptions of the tools."""
    folder = data_dir() / "real" / "metatool"
    tools = json.loads((folder / "plugin_des.json").read_text(encoding="utf-8"))
    tools |= json.loads((folder / "big_tool_des.json").read_text(encoding="utf-8"))
    return [f"{name} {text}" for name, text in tools.items()]


def relevant(name: str) -> dict[str, dict[str, float]]:
    """Return the grades of the relevant documents of each query text, also of those that no search finds."""
    folder = data_dir() / "real" / name
    found: dict[str, dict[str, float]] = defaultdict(dict)
    if name == "govuk":
        with (folder / "search_check_results.csv").open(encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        number = {page: str(place) for place, page in enumerate(dict.fromkeys(row["Page"] for row in rows))}
        for row in rows:
            if row["Position wanted"].startswith("<="):
                found[row["Search Term"]][number[row["Page"]]] = 1.0
    elif name == "stackfaq":
        start = 0
        for pair in json.loads((folder / "stackExchange-FAQ.json").read_text(encoding="utf-8"))["root"]["qapair"]:
            n_answers = len(pair["answer"]) if isinstance(pair["answer"], list) else 1
            for text in pair["rephr"]:
                if isinstance(text, str) and len(text) > _SHORTEST_QUESTION:
                    found[text] |= {str(start + place): 1.0 for place in range(n_answers)}
            start += n_answers
    elif name == "metatool":
        tools = json.loads((folder / "plugin_des.json").read_text(encoding="utf-8"))
        tools |= json.loads((folder / "big_tool_des.json").read_text(encoding="utf-8"))
        number = {tool: str(place) for place, tool in enumerate(tools)}
        with (folder / "all_clean_data.csv").open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if row["Tool"] in number:
                    found[row["Query"]][number[row["Tool"]]] = 1.0
    else:
        judged = judgments(name)
        texts = judged.query_columns[TEXT][judged.query_of_row].tolist()
        assert judged.doc_id is not None
        for text, document, grade in zip(texts, judged.doc_id.tolist(), judged.grades.tolist(), strict=True):
            if grade > 0:
                found[text][document] = grade
    return dict(found)


def texts(name: str) -> dict[str, str]:
    """Return the text of each document."""
    if name in TEXTS_OF:
        return {str(number): text for number, text in enumerate(TEXTS_OF[name]())}
    return {document: " ".join(fields.values()) for document, fields in documents(name)}


TEXTS_OF = {"govuk": govuk_texts, "stackfaq": stackfaq_texts, "metatool": metatool_texts}


def logged(name: str) -> Collection:
    """Read NFCorpus or SciFact: the first 100 hits of Elasticsearch, with 15 features; official test queries."""
    queries = all_logged(name)
    queries = with_family(queries.replace(y=queries.grades))
    judged = judgments(name)
    of_query = dict(zip(judged.qid.tolist(), np.split(judged.grades, judged.offsets[1:-1]), strict=True))
    with gzip.open(data_dir() / "text" / name / "qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        part = {row["query-id"]: row["split"] for row in csv.DictReader(lines, delimiter="\t")}
    qids = queries.qid.astype(np.str_).tolist()
    fold = np.array([0 if part[qid] == "test" else -1 for qid in qids])
    texts = {name: " ".join(fields.values()) for name, fields in documents(name)}
    return Collection(queries, texts, fold, best_dcg([of_query[qid] for qid in qids]))


def movies() -> Collection:
    """Read MSRD; its official split is by movie."""
    parts = msrd()
    queries = QuerySet.concat(list(parts.values()))
    texts = msrd_texts()
    text = np.array([texts[qid] for qid in queries.qid.astype(np.str_).tolist()])
    queries = queries.replace(query_columns={TEXT: text, FAMILY: queries.query_columns["movie"]})
    fold = np.repeat([-1, -1, 0], [len(part) for part in parts.values()])
    with gzip.open(data_dir() / "text" / "msrd" / "movies-corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        described = {movie["id"]: movie for movie in map(json.loads, lines)}
    fields = ("title", "overview", "director", "tags", "genres", "actors", "characters")
    documents = {number: " ".join(str(movie[name] or "") for name in fields) for number, movie in described.items()}
    return Collection(queries, documents, fold, group=FAMILY)


def web() -> Collection:
    """Read mwmbl; its key is the site, and its five folds are official."""
    queries, fold = judged_text("mwmbl")
    with gzip.open(data_dir() / "text" / "mwmbl" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        described = {page["_id"]: page for page in map(json.loads, lines)}
    assert queries.doc_id is not None
    site = np.array([domain(described[each]["url"]) for each in queries.doc_id.tolist()])
    texts = {number: f"{page['title']} {page['text']}" for number, page in described.items()}
    queries = queries.replace(query_columns={TEXT: queries.query_columns[TEXT]}, doc_columns={SITE: site})
    return Collection(with_family(queries), texts, np.asarray(fold, dtype=np.int64) - 1, keys=(SITE,))


def domain(url: str) -> str:
    """Return the last two parts of a host."""
    return ".".join(urlparse(url).netloc.split(".")[-2:])


def data_sets() -> Collection:
    """Read acordar2, whose documents have no texts here; its five folds are official."""
    stored = np.load(data_dir() / "text" / "acordar2" / "scores17.npz")
    queries = query_set(stored, {TEXT: stored["query"]})
    return Collection(with_family(queries), fold=np.unique(stored["fold"], return_inverse=True)[1])


# --- collections in time ---------------------------------------------------------------------------------------------

SLICES = {"0622": "t0", "0722": "t1", "0922": "t2", "0123": "t3", "0623": "t4"}
"""The slices that have positives, by the month and year in ids of documents; t5 has queries only."""
RUNS = {"ColBERT": "ColBERT", "monoT5": "MonoT5", "list-in-T5": "castorini-list-in-t5-150"}
_DEPTH = 100


def longeval() -> Collection:
    """Read LongEval: queries of the slices t1 to t4 with the first hits of three neural rankers; t0 is known.

    Memory knows the positives alone: nobody has judged the other candidates. As evidence, each candidate is a look: the
    choices among positives alone have a rate of 1, from which choices learn nothing, and lose.
    """
    folder = data_dir() / "real" / "longeval"
    text, url, positives = {}, {}, defaultdict(lambda: defaultdict(set))
    for row in _csv(folder / "query_id_map.csv.gz"):
        text |= {(each, row[each]): row["text_fr"] for each in (*SLICES.values(), "t5") if row[each]}
    judged = set()
    for file in ("document-groups-judged-extended.csv.gz", "document-groups-relevant.csv.gz"):
        for row in _csv(folder / file):
            for each in SLICES.values():
                if row[each]:
                    url.setdefault(row[each], row["url"])
                    judged.add(row[each])
    with gzip.open(folder / "expansion-documents.json.gz", "rt") as lines:
        for later, of_query in json.load(lines).items():
            for qid, found in of_query.items():
                for document in found:
                    positives[SLICES[document[3:7]]][text[later, qid]].add(document)
    rows: list[tuple[Any, ...]] = []
    times: list[tuple[str, str, int]] = []
    pages: list[tuple[str, str]] = []
    ideal: list[NDArray[Any]] = []
    for time, each in enumerate(SLICES.values()):
        runs = {name: _run(folder / "runs" / f"{file}-{each}-split-no-split.run.gz") for name, file in RUNS.items()}
        first = _run(folder / "runs" / f"{each}-BM25-split-no-split.run.gz")
        qid_of = {query: qid for (part, qid), query in text.items() if part == each}
        for query in sorted(positives[each]):
            qid, chosen = qid_of[query], positives[each][query]
            hits = {name: run.get(qid, {}) for name, run in runs.items()}
            listed = {hit for run in hits.values() for hit, (_, rank) in run.items() if rank <= _DEPTH}
            listed = listed if time else chosen
            if not listed:
                continue
            times.append((f"{each} {qid}", query, time))
            ideal.append(np.ones(len(chosen)))
            pages += [(times[-1][0], url.get(document, document)) for document in sorted(chosen)]
            for document in sorted(listed):
                scores = [run.get(document, (np.nan, _DEPTH + 1)) for run in hits.values()]
                start = (
                    first[qid].get(document, (0.0, 0))[0]
                    if qid in first
                    else np.exp(np.nan_to_num(scores[1][0], nan=-99.0))
                )
                page = url.get(document, document)
                features = [score for score, _ in scores] + [-float(rank) for _, rank in scores]
                rows.append((times[-1][0], page, features, document in chosen, document in judged, start))
    names, documents, X, y, known, start = (np.array(values) for values in zip(*rows, strict=True))
    columns = {TEXT: np.array([query for _, query, _ in times]), TIME: np.array([time for *_, time in times])}
    queries = QuerySet.from_arrays(
        X,
        y.astype(np.float64),
        qid=names,
        doc_id=documents,
        feature_names=[*RUNS, *(f"{name} rank" for name in RUNS)],
        query_columns=columns,
        doc_columns={SITE: sites(documents), JUDGED: known, FIRST_STAGE: start},
    )
    qids, chosen_pages = (np.array(values) for values in zip(*pages, strict=True))
    remembered = QuerySet.from_arrays(
        np.zeros((len(pages), 1)),
        np.ones(len(pages)),
        qid=qids,
        doc_id=chosen_pages,
        query_columns=columns,
        doc_columns={SITE: sites(chosen_pages)},
    )

    def evidence(before: int) -> Evidence:
        earlier = queries[queries.query_columns[TIME] < before]
        assert earlier.doc_id is not None
        of_row = earlier.query_of_row
        day = 60 * earlier.query_columns[TIME][of_row]
        looks = np.ones(earlier.n_rows)
        return Evidence.from_cells(earlier.query_columns[TEXT][of_row], earlier.doc_id, looks, earlier.grades, day)

    return Collection(
        with_family(queries), keys=(SITE,), ideal=best_dcg(ideal), evidence=evidence, remembered=remembered
    )


def sites(pages: NDArray[Any]) -> NDArray[Any]:
    """Return the sites of pages, which may lack the scheme."""
    return np.array([domain(page if "//" in page else f"//{page}") for page in pages.tolist()])


def _csv(file: Any) -> csv.DictReader[str]:
    return csv.DictReader(gzip.open(file, "rt", encoding="utf-8"))


def _run(file: Any) -> dict[str, dict[str, tuple[float, int]]]:
    """Return the score and rank of each hit of each query; nothing if there is no such run."""
    found: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    if file.exists():
        with gzip.open(file, "rt") as lines:
            for qid, _, document, rank, score, _ in map(str.split, lines):
                found[qid][document] = float(score), int(rank)
    return found


_LEAST_LOOKS, _BEST = 6, 4


def looks() -> Collection:
    """Read looks and choices of GOV.UK: the looks of each pair are divided at random into three times.

    Grades are the rate of choices, times 4. A feature is the share of the earlier looks of the query. Pairs with fewer
    than six looks are left out. One choice in two looks is the prior of the model that counted them, and taken off.
    """
    stored = json.loads(json.loads((data_dir() / "real" / "govuk" / "click_model.json").read_text())["attr"])
    pairs = [
        (query, document, counts["_denominator"] - 2, counts["_numerator"] - 1)
        for query, of_query in stored.items()
        for document, counts in of_query.items()
        if counts["_denominator"] - 2 >= _LEAST_LOOKS
    ]
    text, document, total, chosen = (np.array(values) for values in zip(*sorted(pairs), strict=True))
    looked = np.column_stack([total // 3, total // 3, total - 2 * (total // 3)])
    divide = np.random.default_rng(0).multivariate_hypergeometric
    choices = np.array([divide(part, int(n)) for part, n in zip(looked, chosen, strict=True)])
    known, of_row = np.unique(text, return_inverse=True)
    parts = []
    for time in range(3):
        earlier = looked[:, :time].sum(axis=1)
        share = earlier / np.maximum(np.bincount(of_row, earlier)[of_row], 1)
        parts.append(
            QuerySet.from_arrays(
                np.column_stack([np.log1p(earlier), share]),
                _BEST * choices[:, time] / looked[:, time],
                qid=np.char.add(f"{time} ", text),
                doc_id=document,
                feature_names=["looks", "share of looks"],
                query_columns={TEXT: known, TIME: np.full(len(known), time)},
            )
        )

    def evidence(before: int) -> Evidence:
        cells = [
            (text, document, looked[:, time], choices[:, time], np.full(len(text), time)) for time in range(before)
        ]
        return Evidence.from_cells(*(np.concatenate(values) for values in zip(*cells, strict=True)))

    return Collection(with_family(QuerySet.concat(parts)), measure=(NDCG @ 10)(gain="linear"), evidence=evidence)


READERS: dict[str, Callable[[], Collection]] = {
    "stackfaq": lambda: candidates("stackfaq"),
    "metatool": lambda: candidates("metatool"),
    "govuk": lambda: candidates("govuk"),
    "looks": looks,
    "longeval": longeval,
    "scifact": lambda: logged("scifact"),
    "nfcorpus": lambda: logged("nfcorpus"),
    "acordar2": data_sets,
    "mwmbl": web,
    "msrd": movies,
}


@cache
def read(name: str) -> Collection:
    """Read a collection, once."""
    return READERS[name]()
