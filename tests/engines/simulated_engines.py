"""Simulate how each engine scores candidates with given features for a request, following its documentation.

A clause does not match if its feature is 0. Score normalization is documented only in the code: in OpenSearch's
neural-search, HybridTopScoreDocCollector and MinMaxScoreNormalizationTechnique; in Elasticsearch,
MinMaxScoreNormalizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kinrank.arrays import Float64


def clauses_for(spec: str, names: Sequence[str], candidates: str = "must") -> dict[str, Any]:
    """Return clauses that contain their column. Qdrant's last one is a payload field.

    In Elasticsearch and OpenSearch they return every candidate, by "must" or by "filter", or with "" only matches.
    """
    clauses: dict[str, Any] = {name: {"column": column} for column, name in enumerate(names)}
    if spec.startswith("qdrant"):
        return clauses | ({names[-1]: names[-1]} if spec == "qdrant-formula" else {})
    if not candidates:
        return clauses
    return {name: {"bool": {candidates: [{"ids": {}}], "should": [clause]}} for name, clause in clauses.items()}


def scores(spec: str, request: dict[str, Any], X: Float64) -> Float64:
    """Return the scores that the engine gives to the candidates."""
    return ENGINES[spec.split("(")[0]](request, X)


def _returned(clause: dict[str, Any], X: Float64) -> Float64:
    """Return the scores of a clause, NaN for documents it does not return. An ids query scores 1, a filter 0."""
    if "bool" in clause:
        return X[:, clause["bool"]["should"][0]["column"]] + (1.0 if "must" in clause["bool"] else 0.0)
    return np.where(X[:, clause["column"]] == 0, np.nan, X[:, clause["column"]])


def _min_max(returned: Float64, floor: float = 0.0) -> Float64:
    low, high = np.nanmin(returned), np.nanmax(returned)
    scaled = (returned - low) / (high - low) if high > low else np.where(np.isnan(returned), np.nan, 1.0)
    return np.nan_to_num(np.where(scaled == 0, floor, scaled))


def _opensearch(request: dict[str, Any], X: Float64) -> Float64:
    processor = request["search_pipeline"]["phase_results_processors"][0]["normalization-processor"]
    weights = processor["combination"]["parameters"]["weights"]
    assert abs(sum(weights) - 1.0) < 1e-9
    total = np.zeros(len(X))
    for query, weight in zip(request["query"]["hybrid"]["queries"], weights, strict=True):
        returned = _returned(query, X)
        total += weight * _min_max(np.where(returned == 0, np.nan, returned), floor=0.001)
    return total / sum(weights)


def _elasticsearch(request: dict[str, Any], X: Float64) -> Float64:
    total = np.zeros(len(X))
    for part in request["retriever"]["linear"]["retrievers"]:
        returned = _returned(part["retriever"], X)
        total += part["weight"] * (np.nan_to_num(returned) if part["normalizer"] == "none" else _min_max(returned))
    return total


def _formula(request: dict[str, Any], X: Float64) -> Float64:
    total = np.zeros(len(X))
    for term in request["query"]["formula"]["sum"]:
        weight, variable = term["mult"]
        prefetched = variable.startswith("$score")
        column = request["prefetch"][int(variable[7:-1])]["column"] if prefetched else X.shape[1] - 1
        total += weight * X[:, column]
    return total


ENGINES: dict[str, Callable[[dict[str, Any], Float64], Float64]] = {
    "opensearch-hybrid": _opensearch,
    "elasticsearch-linear": _elasticsearch,
    "qdrant-formula": _formula,
}
