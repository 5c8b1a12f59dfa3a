"""The demo's movies, judgments and simulated clicks as files in the formats of search engines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from kinrank.data.parquet import write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.datasets.click_log import simulate_clicks
from kinrank.demo._search import BOOSTS, Judged, Movie, MovieSearch, load_demo_judgments, load_demo_movies

INDEX = "movies"
TRAIN, TEST, SEARCHED = 600, 400, 300
"""Numbers of judged queries: that the demo's models have learned from, that they have not, and of those with clicks."""
LISTS = 12
"""Median number of simulated lists of a query."""
FEATURES_FILE = f"""[search] # the engine's own query: finds the candidates
multi_match = {json.dumps([f"{field}^{boost:g}" for field, boost in BOOSTS.items()])}

[features]
title = {{ match = "title" }}
title_phrase = {{ phrase = "title" }}
overview = {{ match = "overview" }}
genres = {{ match = "genres" }}
director = {{ match = "director" }}
actors = {{ match = "actors" }}
characters = {{ match = "characters" }}
votes = {{ field = "votes", transform = "log1p" }}
rating = {{ field = "rating" }}
year = {{ field = "year" }}
"""


def write_samples(folder: Path, train: int = TRAIN, test: int = TEST, searched: int = SEARCHED) -> dict[str, str]:
    """Write sample files to a folder, and return what is in each.

    The movies and the judgments are real. The clicks are simulated: users look at rank k of the engine's list with
    probability 1/k.

    The demo's models have learned from `train` of the judged queries, and not from `test`, of which `searched` get
    clicks. Files of the same names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    movies, every = load_demo_movies(), load_demo_judgments()
    by_kind = [each for each in every if each.learned], [each for each in every if not each.learned]
    search, seen = MovieSearch(movies), set[bytes]()
    judged = [
        each for some, most in zip(by_kind, (train, test), strict=True) for each in _distinct(search, some, most, seen)
    ]
    queries = judged_hits(search, judged)
    learned, unseen = queries[:train], queries[train:]
    write_parquet(learned, folder / "train.parquet")
    write_parquet(unseen, folder / "test.parquet")
    (folder / "engine.run").write_text("".join(run_lines(unseen)), encoding="utf-8")
    asked, events = ubi_records(unseen[:searched])
    _write_lines(folder / "bulk.ndjson", bulk_lines(movies))
    (folder / "features.toml").write_text(FEATURES_FILE, encoding="utf-8")
    (folder / "judgments.csv").write_text("\n".join(_judgment_rows(judged)) + "\n", encoding="utf-8")
    (folder / "workbench.json").write_text(json.dumps(workbench_body(judged), indent=1) + "\n", encoding="utf-8")
    _write_lines(folder / "ubi_queries.ndjson", asked)
    _write_lines(folder / "ubi_events.ndjson", events)
    return {
        "bulk.ndjson": f"{len(movies):,} movies, for _bulk of Elasticsearch and OpenSearch",
        "features.toml": "features of these movies, for kinrank log",
        "judgments.csv": f"relevant movies of {len(judged):,} queries, for kinrank log",
        "workbench.json": "the same, for OpenSearch's Search Relevance Workbench",
        "ubi_queries.ndjson": f"simulated searches for {searched:,} of them, in UBI 1.3",
        "ubi_events.ndjson": "the clicks on their results, in UBI 1.3",
        "train.parquet": f"{len(learned):,} judged queries with features, for kinrank train",
        "test.parquet": f"{len(unseen):,} more",
        "engine.run": "the engine's first ten hits of these, as a TREC run",
    }


def _distinct(search: MovieSearch, judged: Iterable[Judged], most: int, seen: set[bytes]) -> Iterator[Judged]:
    """Yield at most some queries whose hits have other features than those seen: none is in training and test."""
    for each in judged:
        hits = search.hits(each.query)
        features = b"" if hits is None else hits.X.tobytes()
        if most and features not in seen:
            seen.add(features)
            most -= 1
            yield each


def judged_hits(search: MovieSearch, judged: Iterable[Judged]) -> QuerySet:
    """Return the hits of judged queries in the engine's order, with titles. Queries are numbered from 1."""
    found = []
    for number, each in enumerate(judged, 1):
        hits = search.hits(each.query, str(number))
        assert hits is not None  # scripts/make_demo.py left out queries without hits
        assert hits.doc_id is not None
        titles = np.array([search.movies[movie].label for movie in hits.doc_id.tolist()])
        columns = {**hits.query_columns, "movie": np.array([min(each.movies)])}
        grades = np.isin(hits.doc_id, each.movies).astype(np.float32)
        found.append(hits.replace(y=grades, doc_title=titles, query_columns=columns))
    return QuerySet.concat(found)


def run_lines(queries: QuerySet) -> Iterator[str]:
    """Yield the first ten hits of each query in the engine's order, as a TREC run."""
    assert queries.doc_id is not None
    for qid, start, stop in zip(queries.qid.tolist(), queries.offsets[:-1], queries.offsets[1:], strict=True):
        for rank, movie in enumerate(queries.doc_id[start : min(stop, start + 10)].tolist(), 1):
            yield f"{qid} Q0 {movie} {rank} {1 / rank:.4f} engine\n"


def bulk_lines(movies: Iterable[Movie]) -> Iterator[dict[str, Any]]:
    """Yield an action and a document for each movie, as ``_bulk`` reads them."""
    for movie in movies:
        yield {"index": {"_index": INDEX, "_id": movie.id}}
        yield {name: value for name, value in vars(movie).items() if name != "id"}


def workbench_body(judged: Iterable[Judged]) -> dict[str, Any]:
    """Return the body that imports judgments into the Search Relevance Workbench."""
    ratings = [
        {"query": each.query, "ratings": [{"docId": movie, "rating": "1.000"} for movie in each.movies]}
        for each in judged
    ]
    return {
        "name": "kinrank sample",
        "description": "Judged movie searches (MSRD, Metarank Labs, CC BY-SA 4.0)",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": ratings,
    }


def ubi_records(queries: QuerySet) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the queries and the events of a simulated log, in the fields of User Behavior Insights 1.3."""
    engine = queries.X[:, queries.feature_names.index("engine_score")]
    log = simulate_clicks(queries, engine, n_lists=LISTS).to_pydict()
    asked: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    starts = [row for row, rank in enumerate(log["rank"]) if rank == 1]
    for start, stop in zip(starts, [*starts[1:], len(log["rank"])], strict=True):
        number, time = log["session"][start], log["time"][start]
        ids = {"application": "kinrank-demo", "query_id": f"q{number}", "client_id": f"c{number}"}
        query = {"user_query": log["query"][start], "query_response_hit_ids": log["document"][start:stop]}
        asked.append({**ids, "timestamp": time.isoformat(), "object_id_field": "_id", **query})
        for row in range(start, stop):
            if log["clicked"][row]:
                rank = log["rank"][row]
                attributes = {
                    "object": {"object_id": log["document"][row], "object_id_field": "_id"},
                    "position": {"ordinal": rank},
                }
                when = (time + timedelta(seconds=3 * rank)).isoformat()
                events.append({**ids, "action_name": "click", "timestamp": when, "event_attributes": attributes})
    return asked, events


def _judgment_rows(judged: Iterable[Judged]) -> Iterator[str]:
    yield "qid,query,doc_id,y"
    for number, each in enumerate(judged, 1):
        text = each.query.replace('"', '""')
        yield from (f'{number},"{text}",{movie},1' for movie in each.movies)


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
