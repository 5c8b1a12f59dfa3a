"""KinRanker and tuned LightGBM behind a live engine: MSRD's queries are logged, learned and searched as users would.

The log contains what ``kinrank log`` logs by default, the first 100 hits of each query. Folds are by movie. LightGBM's
shape and number of trees are chosen on a fifth of the training queries, and it is refitted on all of them; KinRanker
has its defaults. "users" is NDCG@10 of what users see, where unjudged documents count as not relevant; "judged" leaves
unjudged documents out of the ranking. In both, the best possible ranking contains all judged documents, found or not.
The first ``--live`` queries of each fold are searched through the service and must be ranked as in the log.

Results are kept in ``benchmarks/results/live_msrd``, so that an interrupted run can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import log_progress, movie_of
from benchmarks.engine_msrd import CHECKOUT, MOVIES, WORKERS, index_movies, prepare_queries, row, running
from kinrank import KinRanker, QuerySet, SingleRanker, read_parquet
from kinrank.arrays import Float64, Int64
from kinrank.data.split import fold_of_query, split_queries
from kinrank.data.texts import VECTORS
from kinrank.engines import FeatureSet, connect
from kinrank.engines._logger import CandidateSource, FeatureLogger, ResumableLog
from kinrank.engines.base import RetryingPool
from kinrank.engines.lucene import LuceneEngine
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers import Ranker
from kinrank.serve import Service, Settings
from kinrank.serve._search import Searcher

OPTIONS = {"queries": ("3000", "all", "400"), "folds": ("5", "2"), "live": ("100", "20", "all")}
PLAIN = (
    "title",
    "title_phrase",
    "overview",
    "tags",
    "genres",
    "director",
    "actors",
    "characters",
    "best",
    "most",
    "year",
    "votes",
    "rating",
    "popularity",
    "budget",
)
"""Features of the second set, which needs no vectors."""
SHAPES = ({"n_leaves": 7}, {"n_leaves": 15}, {"n_leaves": 31, "min_rows_in_leaf": 20})
MOST_TREES = 300
PORT = 9280
TOP = 10
DISCOUNT = 1 / np.log2(np.arange(2, TOP + 2))
VIEWS = ("users", "judged")
LEFT_OUT = "LightGBM, unjudged left out"


def run(queries: str, folds: str, live: str) -> dict[str, object]:
    """Log, learn, search and measure with both sets of features."""
    work = CHECKOUT / "benchmarks" / "results" / "live_msrd" / queries
    work.mkdir(parents=True, exist_ok=True)
    judged = sample(work, None if queries == "all" else int(queries))
    figures: dict[str, object] = {"queries": len(judged)}
    with running("elasticsearch", port=PORT) as address:
        with connect(f"{address}/movies", MOVIES / "features.toml", timeout=60.0) as engine:
            assert isinstance(engine, LuceneEngine)
            index_movies(engine, "elasticsearch", work)
            logged = log_candidates(engine, judged, work)
        figures["share of hits that are judged"] = round(float(logged.judged.mean()), 3)
        fold = fold_of_query(logged, int(folds), group=logged.query_columns["movie"])

        def movies(n_folds: int) -> NDArray[np.str_]:
            return np.concatenate([movie_of(logged.qid[fold == number]) for number in range(n_folds)])

        sets = feature_sets()
        parts: dict[str, list[dict[str, Float64]]] = {name: [] for name in sets}
        for number, (name, features) in product(range(int(folds)), sets.items()):
            with connect(f"{address}/movies", features, timeout=60.0) as engine:
                out = work / f"{name}-{number}-of-{folds}.npz"
                kept = with_features(logged, features)
                parts[name].append(measured(out, kept, judged, fold, number, engine, live))
            log_progress(f"{name}, {number + 1} folds: {summary(parts[name], movies(number + 1))}")
    figures |= {name: summary(each, movies(int(folds))) for name, each in parts.items()}
    return figures


def sample(work: Path, n_queries: int | None) -> QuerySet:
    """Return judged queries with text, vector and movie: all, or those of movies drawn at random."""
    judged = QuerySet.concat(list(prepare_queries(work, None).values()))
    movie = movie_of(judged.qid)
    judged = judged.replace(query_columns={**judged.query_columns, "movie": movie})
    names = np.unique(movie)
    place = dict(zip(np.random.default_rng(0).permutation(names).tolist(), range(len(names)), strict=True))
    return judged[np.argsort([place[name] for name in movie.tolist()], kind="stable")[:n_queries]]


def log_candidates(engine: LuceneEngine, judged: QuerySet, work: Path, candidates: CandidateSource = "top") -> QuerySet:
    """Log the candidates of all queries, once; by default those of ``kinrank log``."""
    out = work / "logged.parquet"
    if not out.exists():
        ResumableLog(out, judged, FeatureLogger(engine, candidates=candidates)).write(
            RetryingPool(WORKERS), lambda _: None
        )
    return read_parquet(out)


def feature_sets() -> dict[str, FeatureSet]:
    """Return the tutorial's features, and plain ones without vectors."""
    tutorial = FeatureSet.read(MOVIES / "features.toml")
    plain = replace(tutorial, features=tuple(each for each in tutorial.features if each.name in PLAIN))
    return {"26-features": tutorial, "15-features": plain}


def with_features(logged: QuerySet, features: FeatureSet) -> QuerySet:
    """Return the log as it would be with these features; query vectors are kept if one of them compares vectors."""
    chosen = [logged.feature_names.index(name) for name in features.names]
    columns = dict(logged.query_columns)
    if "near" not in features.names:
        del columns[VECTORS]
    return logged.replace(X=logged.X[:, chosen], feature_names=features.names, query_columns=columns)


# --- one fold --------------------------------------------------------------------------------------------------------


def measured(
    out: Path, logged: QuerySet, judged: QuerySet, fold: Int64, number: int, engine: LuceneEngine, live: str
) -> dict[str, Float64]:
    """Train on the other folds, rank this one, and return each query's NDCG by method and view."""
    if not out.exists():
        test = logged[fold == number]
        rankers = fitted(logged[fold != number])
        values = dict(qualities(test, {"engine": -np.arange(test.n_rows, dtype=np.float64)}, judged))
        scores = {name: ranker.predict(test) for name, ranker in rankers.items()}
        values |= dict(qualities(test, scores, judged))
        some = test if live == "all" else test[: int(live)]
        values |= searched(engine, {name: rankers[name] for name in ("KinRanker", "LightGBM")}, some, out.parent)
        np.savez(out.with_suffix(".part"), **values)
        out.with_suffix(".part.npz").rename(out)
    with np.load(out) as stored:
        found = dict(stored)
    log_progress(f"{out.stem}: " + ", ".join(f"{name} {value.mean():.4f}" for name, value in found.items()))
    return found


def fitted(queries: QuerySet) -> dict[str, Ranker]:
    """Fit all methods."""
    judged = queries.only_judged()
    return {
        "LightGBM": SingleRanker(tuned(queries)).fit(queries),
        LEFT_OUT: SingleRanker(tuned(judged)).fit(judged),
        "KinRanker": KinRanker(group_column="movie").fit(queries),
    }


def tuned(queries: QuerySet) -> LambdaMART:
    """Return LambdaMART with the shape and the number of trees that are best on a fifth of the queries, by movie."""
    train, validation = split_queries(queries, (0.8, 0.2), group="movie")
    tried = []
    for shape in SHAPES:
        settings = {"learning_rate": 0.05, "min_rows_in_leaf": 50, **shape}
        curve = LambdaMART(MOST_TREES, **settings).fit(train, validation=validation).validation_ndcg_
        tried.append((float(curve.max()), int(curve.argmax()) + 1, settings))
    _, n_trees, settings = max(tried, key=lambda each: each[0])
    return LambdaMART(n_trees, **settings)


def qualities(test: QuerySet, scores: Mapping[str, Float64], judged: QuerySet) -> Iterator[tuple[str, Float64]]:
    """Yield each query's NDCG@10 by method and view."""
    place = {qid: position for position, qid in enumerate(judged.qid.tolist())}
    ideal = []
    for qid in test.qid.tolist():
        known = judged[place[qid]]
        best = np.sort(known.grades)[::-1][:TOP]
        ideal.append(best @ DISCOUNT[: len(best)])
    for name, each in scores.items():
        for view in VIEWS:
            gained = []
            for query in range(len(test)):
                rows = slice(test.offsets[query], test.offsets[query + 1])
                order = np.argsort(-each[rows], kind="stable")
                if view == "judged":
                    order = order[test.judged[rows][order]]
                grades = test.grades[rows][order][:TOP]
                gained.append(grades @ DISCOUNT[: len(grades)])
            yield f"{name}, {view}", np.array(gained) / ideal


def searched(engine: LuceneEngine, rankers: Mapping[str, Ranker], test: QuerySet, work: Path) -> dict[str, Float64]:
    """Search through the service; return for each query whether it was ranked as the log, and by the model."""
    names = {"KinRanker": "kin", "LightGBM": "lightgbm"}
    for name, ranker in rankers.items():
        ranker.save(work / names[name], examples=test[:20])
    settings = Settings(deadline=60.0, engine_seconds=60.0)
    values: dict[str, list[float]] = {}
    with Service({name: work / name for name in names.values()}, settings=settings) as service:
        searcher = Searcher(service, engine)
        for query in test:
            vector = query.query_columns[VECTORS][0] if VECTORS in query.query_columns else None
            for name, ranker in rankers.items():
                ranking = searcher.search(str(query.query_columns["text"][0]), vector=vector, model=names[name]).ranking
                expected = query.doc_id[np.argsort(-ranker.predict(query), kind="stable")].tolist()
                values.setdefault(f"{name}, live as logged", []).append(ranking.ids == expected)
                values.setdefault(f"{name}, live fallback", []).append(ranking.fallback is not None)
    return {name: np.array(each, dtype=np.float64) for name, each in values.items()}


def summary(parts: list[dict[str, Float64]], movies: NDArray[np.str_]) -> dict[str, object]:
    """Pool the folds and compare the methods, in both views, by movie."""
    pooled = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    figures: dict[str, object] = {}
    for view in VIEWS:
        values = {name.removesuffix(f", {view}"): each for name, each in pooled.items() if name.endswith(f", {view}")}
        figures[view] = {
            **{name: round(float(each.mean()), 4) for name, each in values.items()},
            "KinRanker against LightGBM": row(values["KinRanker"], values["LightGBM"], movies),
            "LightGBM against unjudged left out": row(values["LightGBM"], values[LEFT_OUT], movies),
        }
    live = {name: each for name, each in pooled.items() if ", live" in name}
    return figures | {name: f"{each.sum():.0f} of {len(each)}" for name, each in live.items()}
