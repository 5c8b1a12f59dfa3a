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
from kinrank.demo._search import Movie, MovieSearch, words
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
KIN = 0.4
"""Similarity above which a known query is close kin of an example."""
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
    """Return training queries, and others, at random: people search for the same movies in other words."""
    known = np.zeros(len(queries), dtype=np.bool_)
    known[np.random.default_rng(1).permutation(len(queries))[:QUERIES]] = True
    return queries[known], queries[~known]


def examples(test: QuerySet, kin: KinRanker, trees: SingleRanker) -> dict[str, object]:
    """Return queries that gain most over the engine, and that lose most, one of each movie.

    Where kinrank helps, LightGBM has the first place wrong, too, and what is first now is judged right for close kin.
    """
    judged = test.grades, test.offsets
    engine = -np.concatenate([np.arange(size) for size in test.sizes])
    by_engine, by_trees, by_kin = (
        MEASURE.per_query(scores, *judged) for scores in (engine, trees.predict(test), kin.predict(test))
    )
    for name, quality in (("engine", by_engine), ("LightGBM", by_trees), ("kinrank", by_kin)):
        print(f"{name} {quality.mean():.4f}")
    gain = by_kin - np.maximum(by_engine, by_trees)
    chosen = {}
    for name, order, wanted in (
        ("helps", np.argsort(-gain), by_kin - by_engine > 0),
        ("hurts", np.argsort(by_kin - by_engine), by_kin < by_engine),
    ):
        texts: dict[str, str] = {}
        for position in order[wanted[order]].tolist():
            query = test[position : position + 1]
            movie, text = query.query_columns["movie"][0].item(), query.qid[0].item()
            if movie in texts or text in JUDGED_WRONGLY:
                continue
            if name == "hurts" or explained_by_kin(kin, query):
                texts[movie] = text
            if len(texts) == SHOWN:
                break
        chosen[name] = list(texts.values())
    return chosen


def explained_by_kin(kin: KinRanker, query: QuerySet) -> bool:
    """Return whether memory moved a relevant movie to the first place, and close kin say why."""
    explained = kin.explain(query)[0]
    first = int(np.argmin(explained.rank))
    moved = explained.rank_without[first] > 1 and explained.reasons[first].startswith("judged right for *")
    close = kin.nearest_texts(query, KIN)
    return bool(moved and query.grades[first] > 0 and close and related(close[:4], query.qid[0].item()))


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
    peer = LightGBMPeer().fit(train)
    trees = SingleRanker(peer.learner()).fit(train)
    kin = KinRanker(encoder="ngrams(n_components=48, max_ngrams=4000)", settings={"n_repeats": 1}).fit(train)
    trees.save(TARGET / "lightgbm")
    kin.save(TARGET / "kinrank")
    (TARGET / "examples.json").write_text(json.dumps(examples(test, kin, trees), indent=1) + "\n")


if __name__ == "__main__":
    main()
