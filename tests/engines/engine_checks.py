"""Checks that every engine must pass. They expect an index with the documents of `engine_sample.sample_documents()`."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kinrank.checks import require
from kinrank.engines._query_dsl import SearchOptions
from kinrank.engines.base import Engine
from kinrank.errors import ParameterError
from tests.engines.engine_sample import QUERY, VECTOR, sample_documents

EngineCheck = Callable[[Engine], None]

IDS = [doc_id for doc_id, _ in sample_documents()]
TOLERANCE = 2e-5
"""Scores closer than this, relative to their range, count as ties: engines return them in single precision."""


def engine_checks() -> list[EngineCheck]:
    """Return all checks. Each takes an open engine."""
    return [
        check_health_counts_documents,
        check_search_is_ranked,
        check_features_follow_documents,
        check_one_by_one_equals_together,
        check_search_features_equals_search_and_features,
        check_filter_restricts_candidates,
        check_fields_totals_and_facets,
        check_apply_request_keeps_totals_and_facets,
        check_absent_documents_are_reported,
        check_fetch_by_id_within_filter,
        check_search_adds_documents,
        check_apply_orders_by_weighted_features,
        check_apply_ranks_what_search_finds,
        check_apply_adds_boosts,
        check_apply_within_window,
        check_request_is_plain_json,
        check_invalid_weights_raise,
        check_threads_do_not_matter,
    ]


def check_health_counts_documents(engine: Engine) -> None:
    """Health counts the indexed documents."""
    health = engine.health()
    require(health.documents == len(IDS), f"health reports {health.documents} documents, {len(IDS)} were indexed")
    require(health.status in ("green", "yellow"), f"status is {health.status!r}")
    require(health.nodes >= 1, "health reports no node")


def check_search_is_ranked(engine: Engine) -> None:
    """Search returns unique documents, best first, at most as many as requested."""
    hits = engine.search(QUERY, size=7, vector=VECTOR)
    require(0 < len(hits) <= 7, f"requested 7 candidates, got {len(hits)}")
    require(len(set(hits.doc_id.tolist())) == len(hits), "a document is returned twice")
    require(bool((np.diff(hits.score) <= 0).all()), "scores are not in descending order")
    more = engine.search(QUERY, size=20, vector=VECTOR)
    require(bool(np.allclose(more.score[: len(hits)], hits.score)), "a larger size changes the first hits")


def check_features_follow_documents(engine: Engine) -> None:
    """Rows are in the order of the requested documents, which may repeat."""
    features = engine.features(QUERY, IDS, vector=VECTOR)
    require(features.dtype == np.float32, f"features are {features.dtype}, not float32")
    expected = (len(IDS), len(engine.feature_names))
    require(features.shape == expected, f"expected one row per document and one column per feature: {features.shape}")
    order = [*np.random.default_rng(0).permutation(len(IDS)).tolist(), 0]
    shuffled = engine.features(QUERY, [IDS[i] for i in order], vector=VECTOR)
    require(np.array_equal(features[order], shuffled, equal_nan=True), "rows do not follow their documents")
    empty = engine.features(QUERY, [], vector=VECTOR)
    require(empty.shape == (0, len(engine.feature_names)), f"no documents must give no rows, got {empty.shape}")


def check_one_by_one_equals_together(engine: Engine) -> None:
    """Features of a document do not depend on the other documents of the request."""
    together = engine.features(QUERY, IDS[:6], vector=VECTOR)
    alone = np.concatenate([engine.features(QUERY, [doc_id], vector=VECTOR) for doc_id in IDS[:6]])
    same = bool(np.allclose(together, alone, atol=1e-6, equal_nan=True))
    require(same, "features depend on the other documents of the request")


def check_search_features_equals_search_and_features(engine: Engine) -> None:
    """`search_features` returns the same as `search` and `features`."""
    hits, X = engine.search_features(QUERY, size=9, vector=VECTOR, timeout=60.0)
    require(len(hits) == len(X) == 9, f"requested 9 candidates with features, got {len(hits)} and {len(X)}")
    found = engine.search(QUERY, size=9, vector=VECTOR)
    require(hits.doc_id.tolist() == found.doc_id.tolist(), "candidates differ from those of search()")
    require(bool(np.allclose(hits.score, found.score)), "scores differ from those of search()")
    features = engine.features(QUERY, hits.doc_id.tolist(), vector=VECTOR)
    require(bool(np.allclose(X, features, atol=1e-6, equal_nan=True)), "features differ from those of features()")


def check_filter_restricts_candidates(engine: Engine) -> None:
    """A filter restricts the candidates and changes no score; ``ids`` is a filter of every engine."""
    every = engine.search(QUERY, size=len(IDS), vector=VECTOR)
    some = every.doc_id[1::2].tolist()
    clause = {"ids": {"values": some}}
    found = engine.search(QUERY, size=len(IDS), vector=VECTOR, options=SearchOptions(clause))
    require(found.doc_id.tolist() == some, "candidates are not those that match the filter, in the order without it")
    require(bool(np.allclose(found.score, every.score[1::2])), "a filter changes scores")
    hits, _ = engine.search_features(QUERY, size=len(IDS), vector=VECTOR, options=SearchOptions(clause), timeout=60.0)
    require(hits.doc_id.tolist() == some, "search_features does not apply the filter")


def check_fetch_by_id_within_filter(engine: Engine) -> None:
    """Documents are fetched by id, with features and fields, if they match the filter, found by the query or not."""
    wanted, absent = IDS[::3], "no such document"
    options = SearchOptions({"ids": {"values": IDS[::2]}}, fields=["votes"])
    hits, X = engine.fetch(QUERY, [*wanted, absent], vector=VECTOR, options=options, timeout=60.0)
    expected = [doc_id for doc_id in wanted if doc_id in IDS[::2]]
    require(hits.doc_id.tolist() == expected, f"fetched {hits.doc_id.tolist()}, expected {expected}")
    features = engine.features(QUERY, expected, vector=VECTOR)
    require(bool(np.allclose(X, features, atol=1e-6, equal_nan=True)), "features differ from those of features()")
    votes = {doc_id: document["votes"] for doc_id, document in sample_documents()}
    require(list(hits.fields) == [{"votes": votes[doc_id]} for doc_id in expected], f"the fields are {hits.fields}")


def check_search_adds_documents(engine: Engine) -> None:
    """Documents are added to those that a search finds, and change nothing about these."""
    votes = {doc_id: document["votes"] for doc_id, document in sample_documents()}
    for clause in (None, {"ids": {"values": IDS[::2]}}):
        options = SearchOptions(clause, ["votes"], {"votes": {"stats": {"field": "votes"}}})
        asked: dict[str, Any] = {"size": 5, "vector": VECTOR, "options": options, "timeout": 60.0}
        hits, X = engine.search_features(QUERY, **asked)
        first = hits.doc_id.tolist()
        matching = engine.search(QUERY, size=len(IDS), vector=VECTOR, options=options).doc_id.tolist()
        unmatched = [doc_id for doc_id in IDS if doc_id not in matching]
        wanted = [unmatched[0], first[3], matching[-1], "no such document", *unmatched[1:4], first[0]]
        expected = [doc_id for doc_id in wanted if doc_id in (IDS if clause is None else IDS[::2])]
        expected = [*first, *(doc_id for doc_id in expected if doc_id not in first)]
        found = engine.search_adding(QUERY, wanted, **asked)
        ids = found.hits.doc_id.tolist()
        require((ids, found.n_found, found.problem) == (expected, 5, None), f"found {ids}, expected {expected}")
        require(bool(np.allclose(found.hits.score[:5], hits.score)), "added documents change scores")
        require(bool(np.allclose(found.features[:5], X, atol=1e-5, equal_nan=True)), "added documents change features")
        features = engine.features(QUERY, ids, vector=VECTOR)
        require(bool(np.allclose(found.features, features, atol=1e-5, equal_nan=True)), "features differ when added")
        require(list(found.hits.fields) == [{"votes": votes[doc_id]} for doc_id in ids], "fields are missing")
        require(found.hits.total == hits.total, f"{hits.total} match, the total is {found.hits.total}")
        require(found.hits.facets == hits.facets, "facets count added documents")
    nothing = engine.search_adding(QUERY, [], size=5, vector=VECTOR, timeout=60.0)
    require(len(nothing.hits) == nothing.n_found == 5, "a search that adds nothing finds something else")


def check_fields_totals_and_facets(engine: Engine) -> None:
    """A search returns the requested fields of each document, the total, and the facets of all that match."""
    every = engine.search(QUERY, size=len(IDS), vector=VECTOR)
    options = SearchOptions(fields=["votes"], facets={"votes": {"stats": {"field": "votes"}}})
    votes = {doc_id: document["votes"] for doc_id, document in sample_documents()}
    of_matching = [votes[doc_id] for doc_id in every.doc_id.tolist()]
    searched = engine.search(QUERY, size=5, vector=VECTOR, options=options)
    with_features, _ = engine.search_features(QUERY, size=5, vector=VECTOR, options=options, timeout=60.0)
    for hits in (searched, with_features):
        expected = [{"votes": votes[doc_id]} for doc_id in hits.doc_id.tolist()]
        require(list(hits.fields) == expected, f"the fields of the documents are {hits.fields}")
        require(hits.total == {"value": len(every), "relation": "eq"}, f"{len(every)} match, the total is {hits.total}")
        require(hits.facets["votes"]["sum"] == sum(of_matching), "a facet does not cover all documents that match")


def check_apply_request_keeps_totals_and_facets(engine: Engine) -> None:
    """With options, ranked documents come first, and the total and the facets are those of a search."""
    found = engine.search(QUERY, size=len(IDS), vector=VECTOR)
    some = found.doc_id[::3].tolist()
    options = SearchOptions(fields=["title"], facets={"votes": {"stats": {"field": "votes"}}})
    X = np.nan_to_num(engine.features(QUERY, some, vector=VECTOR)).astype(np.float64)
    rng = np.random.default_rng(4)
    text_only = np.where([name in ("title", "phrase") for name in engine.feature_names], 1.0, 0.0)
    for weights in (rng.normal(size=X.shape[1]), -text_only, text_only, 0 * text_only):
        hits = engine.apply(QUERY, weights, size=len(IDS), vector=VECTOR, doc_ids=some, options=options)
        ranked, scores = hits.doc_id.tolist(), X @ weights
        require(sorted(ranked[: len(some)]) == sorted(some), "documents that are not ranked come before ranked ones")
        in_order = scores[[some.index(doc_id) for doc_id in ranked[: len(some)]]]
        worst = float(np.max(np.diff(in_order))) / max(float(np.ptp(scores)), 1e-12)
        require(worst <= TOLERANCE, "documents are not ranked by the weights")
        require(hits.total == found.total, f"{found.total} match, the total is {hits.total}")
        require(hits.facets["votes"]["count"] == len(found), "a facet does not cover all documents that match")
        require([*hits.fields[0]] == ["title"], f"the fields of a document are {hits.fields[0]}")


def check_absent_documents_are_reported(engine: Engine) -> None:
    """`log` reports documents that are not in the index."""
    logged = engine.log(QUERY, [IDS[0], "nobody", IDS[1]], vector=VECTOR)
    require(logged.found.tolist() == [True, False, True], "found does not report the documents in the index")
    require(bool(np.isnan(logged.values[1]).all()), "a document that is not in the index has features")


def check_apply_orders_by_weighted_features(engine: Engine) -> None:
    """`apply` ranks by ``features @ weights``, for weights of any sign and size."""
    X = np.nan_to_num(engine.features(QUERY, IDS, vector=VECTOR)).astype(np.float64)
    rng = np.random.default_rng(1)
    scale = 1.0 / np.maximum(X.std(axis=0), 0.1)
    for signs, size in (("positive", 1), ("negative", 1), ("any", 1), ("any", 1), ("any", 1e-4), ("any", 1e-8)):
        weights = size * scale * rng.normal(size=X.shape[1])
        if signs != "any":
            weights = np.abs(weights) * (1 if signs == "positive" else -1)
        hits = engine.apply(QUERY, weights, size=len(IDS), vector=VECTOR, doc_ids=IDS)
        require(sorted(hits.doc_id.tolist()) == sorted(IDS), "not every requested document is ranked")
        _promise_order(X @ weights, hits.doc_id.tolist(), f"weights of {signs} sign and size {size:g}")
    hits = engine.apply(QUERY, np.zeros(X.shape[1]), size=5, vector=VECTOR, doc_ids=IDS)
    require(len(hits) == 5, "weights of 0 find no documents")


def check_apply_ranks_what_search_finds(engine: Engine) -> None:
    """Without `doc_ids`, `apply` ranks the documents that `search` finds."""
    found = engine.search(QUERY, size=len(IDS), vector=VECTOR).doc_id.tolist()
    weights = np.random.default_rng(2).normal(size=len(engine.feature_names))
    ranked = engine.apply(QUERY, weights, size=len(IDS), vector=VECTOR).doc_id.tolist()
    require(sorted(ranked) == sorted(found), "apply and search find different documents")


def check_apply_adds_boosts(engine: Engine) -> None:
    """Boosts of any sign are added to ``features @ weights``, also of documents that the search does not find."""
    X = np.nan_to_num(engine.features(QUERY, IDS, vector=VECTOR)).astype(np.float64)
    rng = np.random.default_rng(5)
    weights = rng.normal(size=X.shape[1])
    found = engine.search(QUERY, size=len(IDS), vector=VECTOR).doc_id.tolist()
    missed = next(doc_id for doc_id in IDS if doc_id not in found)
    spread = float(np.ptp(X @ weights))
    for signs in (1.0, -1.0, None):
        boosts = dict(
            zip(IDS[::4], spread * (rng.normal(size=10) if signs is None else signs * rng.random(10)), strict=True)
        )
        boosts[missed] = 3 * spread
        scores = X @ weights + np.array([boosts.get(doc_id, 0.0) for doc_id in IDS])
        hits = engine.apply(QUERY, weights, size=len(IDS), vector=VECTOR, doc_ids=IDS, boosts=boosts)
        _promise_order(scores, hits.doc_id.tolist(), "weights with boosts")
        hits = engine.apply(
            QUERY, weights, size=99, vector=VECTOR, doc_ids=IDS, boosts=boosts, options=SearchOptions(fields=["title"])
        )
        _promise_order(scores, hits.doc_id.tolist(), "weights with boosts and options")
        hits = engine.apply(
            QUERY,
            weights,
            size=99,
            vector=VECTOR,
            doc_ids=[*found[:3], missed],
            boosts=boosts,
            options=SearchOptions({"ids": {"values": found}}),
        )
        require(sorted(hits.doc_id.tolist()) == sorted(found), "a boosted document escapes the filter")


def check_apply_within_window(engine: Engine) -> None:
    """With a window, `apply` ranks the first documents of `search`."""
    first = engine.search(QUERY, size=8, vector=VECTOR)
    weights = np.random.default_rng(3).normal(size=len(engine.feature_names))
    hits = engine.apply(QUERY, weights, size=20, vector=VECTOR, window=8)
    # Compare numbers, not ids: each shard has its own window, and ties at its end may be resolved differently.
    require(len(hits) == len(first), f"a window of 8 must give {len(first)} documents, got {len(hits)}")
    X = np.nan_to_num(engine.features(QUERY, hits.doc_id.tolist(), vector=VECTOR)).astype(np.float64)
    scores = X @ weights
    require(bool((np.diff(scores) <= TOLERANCE * np.ptp(scores)).all()), "hits are not ranked by the weights")


def check_request_is_plain_json(engine: Engine) -> None:
    """Requests are plain JSON and reproducible."""
    weights = np.linspace(-1, 1, len(engine.feature_names))
    request = engine.apply_request(QUERY, weights, size=3, vector=VECTOR)
    require(json.loads(json.dumps(request)) == request, "the request is not plain JSON")
    require(json.loads(json.dumps(dict(engine.apply_params))) == engine.apply_params, "apply_params are not plain JSON")
    again = engine.apply_request(QUERY, weights, size=3, vector=VECTOR)
    require(again == request, "the same query and weights give different requests")


def check_invalid_weights_raise(engine: Engine) -> None:
    """`apply` requires one finite weight per feature."""
    for weights in (np.ones(len(engine.feature_names) + 1), np.full(len(engine.feature_names), np.nan)):
        try:
            engine.apply(QUERY, weights, size=3, vector=VECTOR)
        except ParameterError:
            continue
        require(False, "too many weights or weights that are not finite must raise ParameterError")


def check_threads_do_not_matter(engine: Engine) -> None:
    """Calls from many threads return the same as calls from one."""
    expected = engine.features(QUERY, IDS, vector=VECTOR)
    with ThreadPoolExecutor(8) as threads:
        for features in threads.map(lambda _: engine.features(QUERY, IDS, vector=VECTOR), range(24)):
            require(np.array_equal(features, expected, equal_nan=True), "features differ between threads")


def _promise_order(scores: np.ndarray, ranked: list[str], weights: str) -> None:
    """Check that scores descend along the ranked documents, except for ties."""
    in_order = scores[[IDS.index(doc_id) for doc_id in ranked]]
    worst = float(np.max(np.diff(in_order)) / np.ptp(scores))
    require(
        worst <= TOLERANCE, f"{weights}: a document is ranked above one that scores {worst:.2g} of the range higher"
    )
