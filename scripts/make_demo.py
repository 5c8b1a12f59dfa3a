"""Write the data of ``kinrank demo``: movies, models and examples, from MSRD in the folder KINRANK_DATA.

    python scripts/make_demo.py

Rankers learn from the hits that the demo's own search returns. Examples are held-out queries.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kinrank import KinRanker, QuerySet
from kinrank.demo.search import Movie, MovieSearch, words
from kinrank.measure import NDCG
from kinrank.rankers.single import SingleRanker
from kinrank.study.peers import LightGBMPeer

ROOT = Path(__file__).parents[1]
SOURCE = Path(os.environ.get("KINRANK_DATA", ROOT.parent / "shared" / "data")) / "text" / "msrd"
TARGET = ROOT / "src" / "kinrank" / "demo" / "data"
MOVIES, QUERIES, TESTED, SHOWN = 2500, 1800, 3000, 5
MEASURE = NDCG @ 10
_LEFT_OUT = """
123movies adult bengali bf blue docs download drive egybest free gay gomovies hot lesbian mp4 nude online porn putlocker
sex sexy torrent xxx yify
"""
LEFT_OUT = frozenset(_LEFT_OUT.split())
"""Words of queries that the page had better not show."""
FIRST = "frozen 2 enchanted forest"
"""The example that the page opens with, if it is one: that of README's picture."""
JUDGED_WRONGLY = frozenset({"charlize theron fast and furious 8"})
"""Queries that are no examples, because the movie they want is not judged relevant."""


def read_movies() -> list[Movie]:
    """Return the movies with most votes."""
    with gzip.open(SOURCE / "movies-corpus.jsonl.gz", "rt") as lines:
        rows = sorted(map(json.loads, lines), key=lambda row: -row["votes"])[:MOVIES]
    return [
        Movie(
            *(row["id"], row["title"], row["overview"], ", ".join(row["genres"]), row["director"] or ""),
            *(", ".join(row["actors"]), ", ".join(row["characters"])),
            *(row["year"], row["votes"], round(row["rating"], 1), round(row["popularity"], 1)),
        )
        for row in rows
    ]


def judged_queries(search: MovieSearch) -> QuerySet:
    """Return the hits of the judged queries whose relevant movies are mostly among ours, with their text as id."""
    relevant, texts = defaultdict(set), {}
    with gzip.open(SOURCE / "movies-judgments.tsv.gz", "rt") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            texts[row["query_id"]] = row["query"]
            if row["grade"] != "0":
                relevant[row["query_id"]].add(row["doc_id"])
    by_text = {texts[qid]: documents for qid, documents in relevant.items()}
    rng = np.random.default_rng(0)
    parts = []
    for text in rng.permutation(sorted(by_text)).tolist():
        ours = sorted(by_text[text] & set(search.movies))
        hits = search.hits(text)
        if hits is None or 2 * len(ours) < len(by_text[text]) or LEFT_OUT & set(words(text)):
            continue
        y = np.isin(hits.doc_id, ours).astype(np.float32)
        if y.any():
            parts.append(hits.replace(y=y, query_columns={**hits.query_columns, "movie": np.array([ours[0]])}))
        if len(parts) == QUERIES + TESTED:
            break
    return QuerySet.concat(parts)


def split(queries: QuerySet) -> tuple[QuerySet, QuerySet]:
    """Return training queries, and queries about other movies."""
    movies = np.unique(queries.query_columns["movie"])
    rng = np.random.default_rng(1)
    tested = np.isin(queries.query_columns["movie"], rng.choice(movies, len(movies) // 2, replace=False))
    return queries[np.flatnonzero(~tested)[:QUERIES]], queries[tested]


def examples(test: QuerySet, kin: KinRanker, trees: SingleRanker) -> dict[str, object]:
    """Return queries that gain most from kin compared with trees, and that lose most, one of each movie.

    Only those whose nearest kin share a word with them: a reader understands these at a glance.
    """
    judged = test.grades, test.offsets
    by_kin, by_trees = (MEASURE.per_query(ranker.predict(test), *judged) for ranker in (kin, trees))
    engine = MEASURE.per_query(-np.concatenate([np.arange(size) for size in test.sizes]), *judged)
    print(
        f"engine {engine.mean():.4f}, LightGBM {by_trees.mean():.4f}, kinrank {by_kin.mean():.4f}, {len(test)} queries"
    )
    chosen = {}
    for name, order in (("helps", np.argsort(by_trees - by_kin)), ("hurts", np.argsort(by_kin - by_trees))):
        texts: dict[str, str] = {}
        for position in order.tolist():
            movie, text = test.query_columns["movie"][position].item(), test.qid[position].item()
            if movie in texts or text in JUDGED_WRONGLY:
                continue
            if related(kin.explain(test[position : position + 1])[0].neighbors[:4].tolist(), text):
                texts[movie] = text
            if len(texts) == SHOWN:
                break
        chosen[name] = sorted(texts.values(), key=lambda text: text != FIRST)
    return chosen


def write_judged(train: QuerySet, test: QuerySet) -> None:
    """Write the judged queries: text, relevant movies, and whether the rankers have learned from them."""
    rows = [
        {
            "query": text,
            "movies": queries.doc_id[start:stop][queries.grades[start:stop] > 0].tolist(),
            "learned": learned,
        }
        for queries, learned in ((train, True), (test, False))
        for text, start, stop in zip(queries.qid.tolist(), queries.offsets[:-1], queries.offsets[1:], strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(rows), TARGET / "judged.parquet", compression="zstd", compression_level=19)


def related(kin: list[str], text: str) -> bool:
    """Return whether most of a query's kin share a word with it that says what it is about."""
    about = set(words(text)) - {"cast", "film", "full", "movie", "movies", "new", "watch"}
    return 2 * sum(bool(about & set(words(each))) for each in kin) > len(kin)


def main() -> None:
    """Write everything."""
    movies = read_movies()
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    table = pa.Table.from_pylist([vars(movie) for movie in movies])
    pq.write_table(table, TARGET / "movies.parquet", compression="zstd", compression_level=19)
    train, test = split(judged_queries(MovieSearch(movies)))
    write_judged(train, test)
    peer = LightGBMPeer(group_column="movie").fit(train)
    trees = SingleRanker(peer.learner()).fit(train)
    kin = KinRanker(group_column="movie", n_repeats=1, encoder="ngrams(n_components=48, max_ngrams=4000)").fit(train)
    shown = split(test)[1]
    trees.save(TARGET / "lightgbm")
    kin.save(TARGET / "kinrank")
    (TARGET / "examples.json").write_text(json.dumps(examples(shown, kin, trees), indent=1) + "\n")


if __name__ == "__main__":
    main()
