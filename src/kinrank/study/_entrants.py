"""Evaluate entrants: rankers by name, other libraries, saved models, TREC runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import Run, read_run, scores_from_run
from kinrank.errors import DataError, ParameterError
from kinrank.folder import MANIFEST
from kinrank.measure import Measure, evaluate
from kinrank.measure.base import rank
from kinrank.rankers import RANKERS, load
from kinrank.rankers.capabilities import capabilities_of
from kinrank.registry.notation import call_name
from kinrank.study.comparison import Coverage, Entrant, Fittable, Origin
from kinrank.study.peers import PEERS

TOP = 10


def origin_of(text: str) -> Origin:
    """Return what a text names: a model or run if it is a path, else a ranker or another library.

    Examples
    --------
    >>> origin_of("knn(n_neighbors=400)"), origin_of("lightgbm")
    ('ranker', 'peer')
    """
    path = Path(text)
    if path.exists() and (text in RANKERS or text in PEERS):
        raise ParameterError(
            f"{text!r} is both a ranker and a path: write './{text}' for the path or '{text}()' for the ranker"
        )
    if path.is_dir() and (path / MANIFEST).is_file():
        return "model"
    if path.is_file():
        return "run"
    name = call_name(text)
    if name in RANKERS:
        return "ranker"
    if name in PEERS:
        return "peer"
    rankers = ", ".join([*RANKERS, *PEERS])
    raise ParameterError(
        f"{text!r} is not a model folder, a run file or a ranker: no such path, and the rankers are {rankers}, with "
        "parameters as in 'knn(n_neighbors=400)'"
    )


def needs_fitting(text: str) -> bool:
    """Return whether the text names a ranker that must be fitted, rather than a model or a run."""
    return origin_of(text) in ("ranker", "peer")


def remembers(text: str) -> bool:
    """Return whether the text names a ranker or model that ranks by what was judged or chosen for similar queries."""
    origin = origin_of(text)
    ranker = None if origin == "run" else load(text) if origin == "model" else make_ranker(text)
    return capabilities_of(ranker).remembers


def make_ranker(text: str, *, group: str | None = None) -> Fittable:
    """Create an unfitted ranker from its name and parameters.

    `group` becomes its `group_column`, if it has that parameter and none is set.

    Examples
    --------
    >>> make_ranker("knn(n_neighbors=50)")
    KnnRanker(n_neighbors=50)
    >>> make_ranker("kin", group="movie")
    KinRanker(group_column='movie')
    """
    registry = PEERS if origin_of(text) == "peer" else RANKERS
    made: Any = registry.make(text)
    fittable: Fittable = made if group is None else _grouped(made, group)
    return fittable


def _grouped(ranker: Any, group: str) -> Any:
    params = ranker.get_params(deep=False)
    if params.get("group_column", group) is None:
        ranker.set_params(group_column=group)
    return ranker


def fit_and_evaluate(
    name: str, ranker: Fittable, train: QuerySet, queries: QuerySet, measures: Sequence[Measure]
) -> Entrant:
    """Fit a ranker, rank the test queries, and measure quality and cost."""
    start = time.perf_counter()
    ranker.fit(train)
    seconds = time.perf_counter() - start
    return replace(evaluate_ranker(name, ranker, queries, measures), fit_seconds=seconds)


def evaluate_ranker(name: str, ranker: Fittable, queries: QuerySet, measures: Sequence[Measure]) -> Entrant:
    """Rank the test queries with a fitted ranker, and measure quality and cost."""
    ranker.predict(queries[:1])  # compile and open what is needed once, which is no cost of a query
    start = time.perf_counter()
    scores = ranker.predict(queries)
    seconds = time.perf_counter() - start
    evaluation = evaluate(queries, scores, measures)
    settings = ranker.get_params(deep=False)
    return Entrant(name, "ranker", scores, evaluation, settings, rank_seconds=seconds, ranker=ranker)


def evaluate_run(path: str, queries: QuerySet, measures: Sequence[Measure]) -> Entrant:
    """Measure a TREC run on judged queries."""
    run = read_run(path)
    scores = scores_from_run(queries, run, absent=np.nan)
    absent = np.isnan(scores)
    if absent.all():
        raise DataError(
            f"{path}: no document of this run is in the data; check that query ids (such as "
            f"{run.qid[0].item()!r} and {queries.qid[0].item()!r}) and document ids match"
        )
    # Measures need numbers: the next number below the lowest score ranks missing documents last.
    scores[absent] = np.nextafter(np.nanmin(scores), -np.inf)
    covered = np.bincount(queries.query_of_row, weights=~absent, minlength=len(queries))
    coverage = Coverage(
        absent_documents=int(absent.sum()),
        absent_queries=int((covered == 0).sum()),
        unknown_documents=len(run) - int((~absent).sum()),
        unjudged_top=unjudged_share(queries, run),
    )
    return Entrant(path, "run", scores, evaluate(queries, scores, measures), coverage=coverage)


def unjudged_share(queries: QuerySet, run: Run, top: int = TOP) -> float:
    """Return the share of a run's top documents that are not judged, over queries that are in both.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], y=[0, 1], qid=[7, 7], doc_id=["a", "b"])
    >>> run = Run(np.array([7, 7]), np.array(["b", "c"]), np.array([2.5, 2.0]), np.array([1, 2]))
    >>> unjudged_share(queries, run)
    0.5
    """
    if queries.doc_id is None:
        raise DataError("the queries have no document ids: pass doc_id=, one per row")
    run_qid = run.qid.astype(np.str_)
    rows = queries.judged
    judged = set(zip(_as_text(queries.qid)[queries.query_of_row[rows]], _as_text(queries.doc_id[rows]), strict=True))
    order = np.lexsort((-run.score, run_qid))
    sorted_qid = run_qid[order]
    _, starts, sizes = np.unique(sorted_qid, return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    first = order[(place < top) & np.isin(sorted_qid, _as_text(queries.qid))]
    keys = zip(run_qid[first], _as_text(run.doc_id)[first], strict=True)
    return float(np.mean([key not in judged for key in keys])) if len(first) else float("nan")


def unjudged_in_top(queries: QuerySet, scores: Float64, top: int = TOP) -> float | None:
    """Return the share of the top candidates that are not judged; None if all candidates are judged.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], y=[1, np.nan], qid=[7, 7])
    >>> unjudged_in_top(queries, np.array([0.2, 0.1]))
    0.5
    """
    judged = queries.judged
    if judged.all():
        return None
    ranked = rank(scores, ~judged, queries.offsets)
    return float(ranked.grades[ranked.head(top)].mean())


def _as_text(ids: NDArray[Any]) -> NDArray[np.str_]:
    """Return ids as text, so that 301 and "301" are the same query."""
    texts: NDArray[np.str_] = ids.astype(np.str_)
    return texts


def pool_folds(
    name: str,
    parts: Sequence[Entrant],
    queries: QuerySet,
    rows: Sequence[NDArray[np.int64]],
    measures: Sequence[Measure],
) -> Entrant:
    """Combine the entrants of several folds into one: each query is scored by the model not fitted on it.

    `rows` has the positions in `queries` of the rows of each fold.
    """
    scores: Float64 = np.full(queries.n_rows, np.nan)
    for part, rows_of_fold in zip(parts, rows, strict=True):
        scores[rows_of_fold] = part.scores
    return Entrant(
        name,
        parts[0].origin,
        scores,
        evaluate(queries, scores, measures),
        parts[0].settings,
        fit_seconds=_total([part.fit_seconds for part in parts]),
        rank_seconds=_total([part.rank_seconds for part in parts]),
        parts=tuple(parts),
    )


def _total(seconds: Sequence[float | None]) -> float | None:
    measured = [value for value in seconds if value is not None]
    return sum(measured) if len(measured) == len(seconds) else None
