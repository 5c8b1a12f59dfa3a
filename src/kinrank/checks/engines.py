"""What every engine promises. The checks want an engine whose index holds `engine_sample.sample_documents()`."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kinrank.checks.engine_sample import QUERY, VECTOR, sample_documents
from kinrank.checks.worlds import promise
from kinrank.engines.base import Engine
from kinrank.errors import EngineTimeoutError, ParameterError

EngineCheck = Callable[[Engine], None]

IDS = [doc_id for doc_id, _ in sample_documents()]
TOLERANCE = 2e-5
"""Scores travel in single precision, shifted by a bound: documents this close, by the spread of scores, are ties."""


def engine_checks() -> list[EngineCheck]:
    """All checks; each takes an engine that is open."""
    return [
        check_health_counts_documents,
        check_search_is_ranked,
        check_features_follow_documents,
        check_one_by_one_equals_together,
        check_search_features_are_search_and_features,
        check_absent_documents_are_told,
        check_apply_orders_as_weighted_features,
        check_apply_ranks_what_search_finds,
        check_apply_within_a_window,
        check_request_is_plain_json,
        check_wrong_weights_are_refused,
        check_threads_do_not_matter,
        check_timeout_is_kept,
    ]


def check_health_counts_documents(engine: Engine) -> None:
    """Health names the engine and counts what was indexed."""
    health = engine.health()
    promise(health.documents == len(IDS), f"health says {health.documents} documents, {len(IDS)} were indexed")
    promise(health.status in ("green", "yellow"), f"status is {health.status!r}")
    promise(health.nodes >= 1, "at least one node answers")


def check_search_is_ranked(engine: Engine) -> None:
    """Candidates come best first, none twice, no more than asked for."""
    hits = engine.search(QUERY, size=7, vector=VECTOR)
    promise(0 < len(hits) <= 7, f"asked for 7 candidates, got {len(hits)}")
    promise(len(set(hits.doc_id.tolist())) == len(hits), "a document is a candidate once")
    promise(bool((np.diff(hits.score) <= 0).all()), "scores must descend")
    more = engine.search(QUERY, size=20, vector=VECTOR)
    promise(bool(np.allclose(more.score[: len(hits)], hits.score)), "a longer list starts as the shorter one does")


def check_features_follow_documents(engine: Engine) -> None:
    """Rows are in the order of the documents asked for, also where one is asked for twice."""
    straight = engine.features(QUERY, IDS, vector=VECTOR)
    promise(straight.dtype == np.float32, "features are float32")
    promise(straight.shape == (len(IDS), len(engine.feature_names)), "one row per document, one column per feature")
    order = [*np.random.default_rng(0).permutation(len(IDS)).tolist(), 0]
    shuffled = engine.features(QUERY, [IDS[i] for i in order], vector=VECTOR)
    promise(np.array_equal(straight[order], shuffled, equal_nan=True), "rows must follow their documents")
    promise(engine.features(QUERY, [], vector=VECTOR).shape == (0, len(engine.feature_names)), "no documents, no rows")


def check_one_by_one_equals_together(engine: Engine) -> None:
    """A document's features do not depend on what else is asked."""
    together = engine.features(QUERY, IDS[:6], vector=VECTOR)
    alone = np.concatenate([engine.features(QUERY, [doc_id], vector=VECTOR) for doc_id in IDS[:6]])
    promise(bool(np.allclose(together, alone, atol=1e-6, equal_nan=True)), "one document alone has the same features")


def check_search_features_are_search_and_features(engine: Engine) -> None:
    """Asked for in one go, candidates are those of search, and have the features they have alone."""
    hits, X = engine.search_features(QUERY, size=9, vector=VECTOR, timeout=60.0)
    promise(len(hits) == len(X) == 9, f"asked for 9 candidates with features, got {len(hits)} and {len(X)}")
    found = engine.search(QUERY, size=9, vector=VECTOR)
    promise(hits.doc_id.tolist() == found.doc_id.tolist(), "the candidates are those of search(), in its order")
    promise(bool(np.allclose(hits.score, found.score)), "the scores are those of search()")
    alone = engine.features(QUERY, hits.doc_id.tolist(), vector=VECTOR)
    promise(bool(np.allclose(X, alone, atol=1e-6, equal_nan=True)), "the features are those of features()")


def check_absent_documents_are_told(engine: Engine) -> None:
    """A document that is not in the index is told from one whose features are missing."""
    logged = engine.log(QUERY, [IDS[0], "nobody", IDS[1]], vector=VECTOR)
    promise(logged.found.tolist() == [True, False, True], "found must tell which documents there are")
    promise(bool(np.isnan(logged.values[1]).all()), "a document that is not there has no features")


def check_apply_orders_as_weighted_features(engine: Engine) -> None:
    """With weights in the request the engine ranks by features @ weights, of any sign and however small."""
    X = np.nan_to_num(engine.features(QUERY, IDS, vector=VECTOR)).astype(np.float64)
    random = np.random.default_rng(1)
    scale = 1.0 / np.maximum(X.std(axis=0), 0.1)
    for signs, size in (("positive", 1), ("negative", 1), ("any", 1), ("any", 1), ("any", 1e-4), ("any", 1e-8)):
        weights = size * scale * random.normal(size=X.shape[1])
        if signs != "any":
            weights = np.abs(weights) * (1 if signs == "positive" else -1)
        hits = engine.apply(QUERY, weights, size=len(IDS), vector=VECTOR, doc_ids=IDS)
        promise(sorted(hits.doc_id.tolist()) == sorted(IDS), "every document asked for is ranked")
        _promise_order(X @ weights, hits.doc_id.tolist(), f"weights of {signs} sign and size {size:g}")
    hits = engine.apply(QUERY, np.zeros(X.shape[1]), size=5, vector=VECTOR, doc_ids=IDS)
    promise(len(hits) == 5, "weights of 0 still find documents")


def check_apply_ranks_what_search_finds(engine: Engine) -> None:
    """Without doc_ids, apply ranks all that search finds."""
    found = engine.search(QUERY, size=len(IDS), vector=VECTOR).doc_id.tolist()
    weights = np.random.default_rng(2).normal(size=len(engine.feature_names))
    ranked = engine.apply(QUERY, weights, size=len(IDS), vector=VECTOR).doc_id.tolist()
    promise(sorted(ranked) == sorted(found), "apply ranks what search finds")


def check_apply_within_a_window(engine: Engine) -> None:
    """With a window, apply ranks the first documents of search."""
    first = engine.search(QUERY, size=8, vector=VECTOR)
    weights = np.random.default_rng(3).normal(size=len(engine.feature_names))
    hits = engine.apply(QUERY, weights, size=20, vector=VECTOR, window=8)
    # On several shards a window is taken of each, and documents that tie at its end may change places.
    promise(len(hits) == len(first), f"a window of 8 gives {len(first)} documents, got {len(hits)}")
    X = np.nan_to_num(engine.features(QUERY, hits.doc_id.tolist(), vector=VECTOR)).astype(np.float64)
    scores = X @ weights
    promise(bool((np.diff(scores) <= TOLERANCE * np.ptp(scores)).all()), "ranked by the weights")


def check_request_is_plain_json(engine: Engine) -> None:
    """The request can be sent by anyone."""
    weights = np.linspace(-1, 1, len(engine.feature_names))
    request = engine.apply_request(QUERY, weights, size=3, vector=VECTOR)
    promise(json.loads(json.dumps(request)) == request, "a request is plain JSON")
    promise(json.loads(json.dumps(dict(engine.apply_params))) == engine.apply_params, "so are its parameters")
    promise(
        engine.apply_request(QUERY, weights, size=3, vector=VECTOR) == request, "the same question, the same request"
    )


def check_wrong_weights_are_refused(engine: Engine) -> None:
    """One finite weight per feature."""
    for weights in (np.ones(len(engine.feature_names) + 1), np.full(len(engine.feature_names), np.nan)):
        try:
            engine.apply(QUERY, weights, size=3, vector=VECTOR)
        except ParameterError:
            continue
        promise(False, "weights that are too many or not finite must be refused")


def check_threads_do_not_matter(engine: Engine) -> None:
    """Calls from many threads give what calls from one do."""
    expected = engine.features(QUERY, IDS, vector=VECTOR)
    with ThreadPoolExecutor(8) as threads:
        for got in threads.map(lambda _: engine.features(QUERY, IDS, vector=VECTOR), range(24)):
            promise(np.array_equal(got, expected, equal_nan=True), "threads must not matter")


def check_timeout_is_kept(engine: Engine) -> None:
    """An answer that takes longer than allowed is an EngineTimeoutError."""
    try:
        engine.features(QUERY, IDS, vector=VECTOR, timeout=1e-4)
    except EngineTimeoutError:
        return
    promise(False, "a tenth of a millisecond cannot suffice")


def _promise_order(scores: np.ndarray, ranked: list[str], which: str) -> None:
    """Scores descend along the ranked documents, ties aside."""
    along = scores[[IDS.index(doc_id) for doc_id in ranked]]
    worst = float(np.max(np.diff(along)) / np.ptp(scores))
    promise(worst <= TOLERANCE, f"{which}: a document stands {worst:.2g} of the spread of scores before a better one")
