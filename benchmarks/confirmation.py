"""The frozen confirmation of decision 60: KinRanker without weights per query, and an equal bag, on unused data.

acordar2 has the scores of 17 searches. NFCorpus and SciFact are indexed in Elasticsearch, and the features of the first
100 hits of each query are logged; hits without a judgment count as not relevant, and queries without a relevant hit are
left out. MSRD has its 20 features and folds by movie. It chose the design, so that it does not count for the verdict.

- *kin*: KinRanker with the best of three shapes of trees by its out-of-fold record;
- *without*: the same without weights per query;
- *bag*: KinRanker's trees on the features alone: as many members, which leave out the same folds of queries, with the
  same shapes, feature fraction and choice of shape and number of trees;
- *catboost*: CatBoost with LambdaMart or YetiRank and three depths, chosen on the validation queries. MSRD lacks it:
  YetiRank takes too long there.

All methods of a split learn from the same queries. No quality is printed before the end. Finished parts are kept in
``benchmarks/results/confirmation`` and not measured again; ``--measure no`` reports on what there is. ``--repeats`` is
the number of repeats that are measured and reported. With one repeat the test is the paired t-test (by movie on MSRD),
with several the corrected resampled one. ``--shapes one`` has KinRanker's default shape in place of three.
Holm corrects the two tests of each collection but MSRD together. ``KINRANK_ELASTICSEARCH`` is the address of a running
server (``elasticsearch+http://HOST:PORT``); without it, one is started.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks import kin_quality
from benchmarks.common import data_dir, log_progress, movie_of
from benchmarks.engine_msrd import running
from benchmarks.kin_quality import (
    MOVIES,
    RATE,
    SHAPES,
    Split,
    Values,
    by_movie,
    difference,
    folds_of,
    tree_settings,
    with_members,
)
from benchmarks.libraries import CatBoostPeer
from kinrank import KinRanker, QuerySet, read_parquet
from kinrank.data.split import fold_of_query
from kinrank.datasets import make_intents
from kinrank.engines import FeatureSet, connect
from kinrank.engines._logger import FeatureLogger, ResumableLog
from kinrank.engines.base import RetryingPool
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import holm
from kinrank.rankers._local.choose import MEASURE
from kinrank.rankers.kin._fitting import KinFitting
from kinrank.rankers.kin._trees import best_number_of_trees
from kinrank.study.peers import Shape
from reproduction.data_folder import query_set

FOLDS, REPEATS = 5, 10
METHODS = ("kin", "without", "bag", "catboost")
RIVALS = ("bag", "catboost")
LOSSES = (None, {"loss_function": "YetiRank"})
SMALLEST_GAIN = 0.002
RESULTS = Path(__file__).parent / "results" / "confirmation"
PORT = 9290

FEATURES = FeatureSet.parse(
    """
[search]
multi_match = ["title^2", "text", "title.english^2", "text.english"]
type = "most_fields"

[features]
title = { match = "title" }
title_en = { match = "title.english" }
title_and = { match = "title", operator = "and" }
title_most = { match = "title.english", minimum_should_match = "50%" }
title_phrase = { phrase = "title", slop = 3 }
text = { match = "text" }
text_en = { match = "text.english" }
text_and = { match = "text.english", operator = "and" }
text_most = { match = "text.english", minimum_should_match = "50%" }
text_phrase = { phrase = "text.english", slop = 3 }
best = { multi_match = ["title^2", "text"], tie_breaker = 0.3 }
most = { multi_match = ["title^2", "text", "title.english^2", "text.english"], type = "most_fields" }
title_words = { field = "title.words" }
text_words = { field = "text.words" }
query_words = { query_length = "words" }
"""
)
_TEXT = {
    "type": "text",
    "fields": {
        "english": {"type": "text", "analyzer": "english"},
        "words": {"type": "token_count", "analyzer": "standard"},
    },
}
INDEX = {
    "settings": {"index": {"number_of_shards": 1, "number_of_replicas": 0}},
    "mappings": {"dynamic": False, "properties": {"title": _TEXT, "text": _TEXT}},
}


# --- collections -----------------------------------------------------------------------------------------------------


def acordar2() -> QuerySet:
    """Return the judged queries of acordar2, with the scores of 17 searches; NaN: not returned by the search."""
    stored = np.load(data_dir() / "text" / "acordar2" / "scores17.npz")
    return query_set(stored, {"text": stored["query"]})


def official_folds(repeat: int) -> list[Split]:
    """Return the official folds of acordar2, in later repeats other folds."""
    queries = acordar2()
    if repeat:
        return random_folds(queries, repeat)
    fold = np.load(data_dir() / "text" / "acordar2" / "scores17.npz")["fold"]
    return folds_of(queries, np.unique(fold, return_inverse=True)[1], FOLDS)


def random_folds(queries: QuerySet, seed: int, n_folds: int = FOLDS) -> list[Split]:
    """Return random folds; queries of the same text are in the same fold."""
    text = np.char.lower(np.char.strip(queries.query_columns["text"].astype(np.str_)))
    return folds_of(queries, fold_of_query(queries, n_folds, group=text, seed=seed), n_folds)


def logged_folds(name: str) -> Callable[[int], list[Split]]:
    """Return random folds of a collection that is logged from Elasticsearch."""
    return lambda seed: random_folds(logged(name), seed)


@cache
def logged(name: str) -> QuerySet:
    """Return the logged queries that have a relevant hit."""
    queries = all_logged(name)
    relevant = np.add.reduceat(queries.grades > 0, queries.offsets[:-1])
    return queries[relevant > 0]


@cache
def all_logged(name: str) -> QuerySet:
    """Index the documents and log the first hits of each query, once."""
    out = RESULTS / f"{name}.parquet"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        server = os.environ.get("KINRANK_ELASTICSEARCH")
        with (
            nullcontext(server) if server else running("elasticsearch", port=PORT) as address,
            connect(f"{address}/confirmation-{name}", FEATURES, timeout=60.0) as engine,
        ):
            engine.index(documents(name), settings=INDEX)
            log = ResumableLog(out, judgments(name), FeatureLogger(engine))
            log_progress(f"{name}: {log.write(RetryingPool(2), lambda _: None)}")
            engine.delete_index()
    return read_parquet(out)


def documents(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the documents of a collection."""
    with gzip.open(data_dir() / "text" / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            yield document["_id"], {"title": document["title"], "text": document["text"]}


def judgments(name: str) -> QuerySet:
    """Return the judged documents of all queries, without features."""
    folder = data_dir() / "text" / name
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        text = {query["_id"]: query["text"] for query in map(json.loads, lines)}
    with gzip.open(folder / "qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["query-id"] in text]
    rows.sort(key=lambda row: row["query-id"])
    qid = np.array([row["query-id"] for row in rows])
    return QuerySet.from_arrays(
        np.zeros((len(rows), 0), dtype=np.float32),
        np.array([float(row["score"]) for row in rows]),
        qid=qid,
        doc_id=np.array([row["corpus-id"] for row in rows]),
        query_columns={"text": np.array([text[each] for each in np.unique(qid).tolist()])},
    )


def generated_folds(seed: int) -> list[Split]:
    """Return three folds of a generated collection that takes seconds."""
    queries = make_intents(90, 0, n_docs=10, n_features=6, spread=1.0)
    return folds_of(queries, fold_of_query(queries, 3, seed=seed), 3)


@dataclass(frozen=True)
class Collection:
    """Judged queries in folds, the settings of KinRanker, the methods, and whether it counts for the verdict."""

    splits: Callable[[int], list[Split]]
    folds: int = FOLDS
    settings: dict[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = METHODS
    counts: bool = True


COLLECTIONS = {
    "acordar2": Collection(official_folds),
    "nfcorpus": Collection(logged_folds("nfcorpus")),
    "scifact": Collection(logged_folds("scifact")),
    "msrd": Collection(by_movie, settings=MOVIES, methods=("kin", "without", "bag"), counts=False),
    "small": Collection(generated_folds, folds=3),
}
OPTIONS = {
    "collection": ("all", *COLLECTIONS),
    "repeats": (str(REPEATS), *map(str, range(1, REPEATS))),
    "shapes": ("three", "one"),
    "measure": ("yes", "no"),
}
TRIED = {"three": SHAPES, "one": ((15, 50),)}
Job = tuple[str, str, int, int, str]
"""Shapes, collection, repeat, fold, method."""


# --- measuring -------------------------------------------------------------------------------------------------------


def run(
    collection: str = "all", repeats: str = str(REPEATS), shapes: str = "three", measure: str = "yes"
) -> dict[str, object]:
    """Measure what is missing, and report."""
    names = [name for name in COLLECTIONS if name != "small"] if collection == "all" else [collection]
    for repeat, fold, name in product(range(int(repeats)), range(FOLDS), names):
        for method in COLLECTIONS[name].methods:
            job = (shapes, name, repeat, fold, method)
            if measure == "yes" and fold < COLLECTIONS[name].folds and not result_file(job).exists():
                measure_part(job)
    return report(names, shapes, int(repeats))


def result_file(job: Job) -> Path:
    """Return where the values of a part are kept; the name changes with the code of the rankers."""
    shapes, name, repeat, fold, method = job
    return RESULTS / shapes / name / f"{repeat}-{fold}-{method}-{kin_quality.code_of('kin')}.npz"


@cache
def splits(name: str, repeat: int) -> list[Split]:
    """Return the (train, validation, test) splits of a repeat."""
    return COLLECTIONS[name].splits(repeat)


def measure_part(job: Job) -> None:
    """Measure a part, and keep the values of its test queries."""
    shapes, name, repeat, fold, method = job
    train, vali, test = splits(name, repeat)[fold]
    start = time.process_time()
    scores, note = score(method, (train, vali, test), TRIED[shapes], COLLECTIONS[name].settings, seed=10 * repeat)
    seconds = time.process_time() - start
    values = MEASURE.per_query(scores, test.grades, test.offsets)
    file = result_file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, values=values, qid=test.qid.astype(np.str_), note=note, seconds=seconds)
    partial.rename(file)
    log_progress(f"{name:9} {repeat} {fold} {method:9} {len(test)} queries, {seconds:.0f} s of CPU")


def score(
    method: str, split: Split, shapes: Sequence[Shape], settings: dict[str, Any], seed: int
) -> tuple[np.ndarray, str]:
    """Return the scores of the test queries, and the chosen settings."""
    train, vali, test = split
    both = QuerySet.concat([train, vali])
    if method == "catboost":
        peers = (
            CatBoostPeer(kin_quality.MOST_TREES, learning_rate=RATE, shapes=shapes, params=loss, seed=seed).fit(
                train, validation=vali
            )
            for loss in LOSSES
        )
        best = max(peers, key=lambda peer: MEASURE.mean(peer.predict(vali), vali.grades, vali.offsets))
        return best.grow(both).predict(test), f"{best.params}, {best.shape_}, {best.n_trees_} trees"
    rankers = [
        KinRanker(
            trees=tree_settings(*shape),
            local=method != "without",
            seed=seed,
            **with_members(settings),
        )
        for shape in shapes
    ]
    if method == "bag":
        bag = max((EqualBag.fit(ranker, both) for ranker in rankers), key=lambda each: each.quality)
        return bag.predict(test), f"{bag.members[0].n_leaves} leaves, {len(bag.members)} members"
    chosen = max((ranker.fit(both) for ranker in rankers), key=lambda ranker: ranker.record_["blend"])
    shares = ", ".join(f"{part} {share:.1f}" for part, share in chosen.shares_.items())
    leaves, members = chosen.trees.n_leaves, len(chosen.members_)
    return chosen.predict(test), f"{leaves} leaves, {members} members, k={chosen.n_neighbors_}; {shares}"


@dataclass(frozen=True)
class EqualBag:
    """The tree models of a KinRanker, trained on the features alone, and their out-of-fold NDCG@10.

    Members leave out the same folds of queries and have the same settings and seeds as those of the ranker, and the
    number of trees is chosen in the same way.
    """

    members: list[LambdaMART]
    quality: float

    @classmethod
    def fit(cls, ranker: KinRanker, queries: QuerySet) -> EqualBag:
        """Train as many members as the ranker has."""
        fitting = KinFitting(ranker)
        folds, n_members = fitting.assign_folds(queries), fitting.settings.n_members
        parts = list(product(range(len(folds)), range(n_members)))
        members, curves, sizes = [], [], []
        for repeat, held_out in parts:
            out = folds[repeat] == held_out
            settings = clone(ranker.trees).set_params(seed=ranker.seed + repeat * n_members + held_out)
            members.append(settings.fit(queries[~out], validation=queries[out]))
            curves.append(members[-1].validation_ndcg_)
            sizes.append(np.count_nonzero(out))
        n_trees = best_number_of_trees(curves, np.array(sizes))
        unseen = np.zeros(queries.n_rows)
        for (repeat, held_out), member in zip(parts, members, strict=True):
            rows = np.repeat(folds[repeat] == held_out, queries.sizes)
            unseen[rows] += member.keep_trees(n_trees).predict(queries.X[rows])
        quality = MEASURE.mean(unseen, queries.grades, queries.offsets)
        most = min(2 * n_trees, len(curves[0]))
        return cls([member.keep_trees(most) for member in members], quality)

    def predict(self, queries: QuerySet) -> np.ndarray:
        """Return the mean score of the members."""
        return np.mean([member.predict(queries.X) for member in self.members], axis=0)


# --- reporting -------------------------------------------------------------------------------------------------------


def report(names: Sequence[str], shapes: str, repeats: int) -> dict[str, object]:
    """Return means, both contrasts and their readings, over the folds in which all methods are measured."""
    rows = {}
    for name in names:
        complete = complete_folds(name, shapes, repeats)
        if complete:
            rows[name] = row(name, shapes, repeats, complete)
    counting = [each for name, each in rows.items() if COLLECTIONS[name].counts]
    family = [each[contrast] for each in counting for contrast in ("over without", "over rival")]
    for tested, p in zip(family, holm([tested["p"] for tested in family]), strict=True):
        tested["p, Holm"] = float(f"{p:.2g}")
        tested["reading"] = reading(tested)
    return {"shapes": shapes, "code": kin_quality.code_of("kin"), "NDCG@10": rows, "tests in the family": len(family)}


def complete_folds(name: str, shapes: str, repeats: int) -> list[int]:
    """Return the folds in which all methods of all repeats are measured."""
    collection = COLLECTIONS[name]
    return [
        fold
        for fold in range(collection.folds)
        if all(
            result_file((shapes, name, repeat, fold, method)).exists()
            for repeat, method in product(range(repeats), collection.methods)
        )
    ]


def row(name: str, shapes: str, repeats: int, folds: Sequence[int]) -> dict[str, object]:
    """Return the figures of a collection."""
    methods = COLLECTIONS[name].methods
    values = {method: read_values(name, shapes, method, repeats, folds) for method in methods}
    means = {method: float(np.nanmean(each.values)) for method, each in values.items()}
    rivals = [method for method in RIVALS if method in means]
    contrasts = {"without": "without", "rival": max(rivals, key=means.__getitem__), **{each: each for each in rivals}}
    return {
        "queries": values["kin"].values.shape[1],
        "repeats": repeats,
        "folds": len(folds),
        **{method: round(mean, 4) for method, mean in means.items()},
        "rival": contrasts["rival"],
        **{
            f"over {label}": difference(values["kin"].compared_with(values[method]))
            for label, method in contrasts.items()
        },
    }


def read_values(name: str, shapes: str, method: str, repeats: int, folds: Sequence[int]) -> Values:
    """Read the parts of a method, with queries in the order of their ids."""
    values, fold_of = [], []
    for repeat in range(repeats):
        parts = [np.load(result_file((shapes, name, repeat, fold, method))) for fold in folds]
        qid = np.concatenate([part["qid"] for part in parts])
        order = np.argsort(qid, kind="stable")
        values.append(np.concatenate([part["values"] for part in parts])[order])
        fold_of.append(np.repeat(folds, [len(part["qid"]) for part in parts])[order])
    movie = movie_of(qid[order]) if COLLECTIONS[name].settings is MOVIES else None
    return Values(np.array(values), np.array(fold_of), movie)


def reading(tested: dict[str, float]) -> str:
    """Return how decision 60 reads a difference."""
    if tested["p, Holm"] < 0.05 and tested["gain"] > 0:
        return "confirmed"
    return "refuted" if tested["high"] < SMALLEST_GAIN else "open"
