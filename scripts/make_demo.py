"""Write the data of ``kinrank demo``: movies, models and examples, from MSRD in the folder KINRANK_DATA.

    python scripts/make_demo.py

Rankers learn from the hits that the demo's own search returns. Examples are held-out queries about other movies.
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

from kinrank import ChoiceRanker, KinRanker, QuerySet
from kinrank.demo.movies import Movie
from kinrank.demo.search import MovieSearch, words
from kinrank.measure import NDCG
from kinrank.rankers.single import SingleRanker
from kinrank.study.peers import LightGBMPeer

ROOT = Path(__file__).parents[1]
SOURCE = Path(os.environ.get("KINRANK_DATA", ROOT.parent / "shared" / "data")) / "text" / "msrd"
TARGET = ROOT / "src" / "kinrank" / "demo" / "data"
MOVIES, QUERIES, TESTED, SHOWN = 2500, 1800, 3000, 5
MEASURE = NDCG @ 10
LEFT_OUT = frozenset(
    "123movies adult download free gay lesbian nude online porn putlocker sex sexy torrent xxx".split()  # noqa: SIM905
)
"""Words of queries that the page had better not show."""


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
    """Return queries that gain most from kin compared with trees, and that lose most, one of each movie."""
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
            texts.setdefault(test.query_columns["movie"][position].item(), test.qid[position].item())
        chosen[name] = list(texts.values())[:SHOWN]
    return chosen


def main() -> None:
    """Write everything."""
    movies = read_movies()
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    table = pa.Table.from_pylist([vars(movie) for movie in movies])
    pq.write_table(table, TARGET / "movies.parquet", compression="zstd", compression_level=19)
    train, test = split(judged_queries(MovieSearch(movies)))
    peer = LightGBMPeer(group_column="movie").fit(train)
    trees = SingleRanker(peer.learner()).fit(train)
    kin = KinRanker(group_column="movie", n_repeats=1, encoder="ngrams(n_components=64, max_ngrams=4000)").fit(train)
    held_out, shown = split(test)
    choices = ChoiceRanker(kin, prefit=True).fit(held_out)  # calibrated on queries that it has not seen
    trees.save(TARGET / "lightgbm")
    choices.save(TARGET / "kinrank")
    (TARGET / "examples.json").write_text(json.dumps(examples(shown, kin, trees), indent=1) + "\n")


if __name__ == "__main__":
    main()
