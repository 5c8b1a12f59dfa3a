"""What each engine computes from a request, as its documentation says, over candidates whose features are given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def clauses_for(spec: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Clauses that name their column; Qdrant's last one is a payload field."""
    if spec.startswith(("opensearch", "elasticsearch", "qdrant")):
        clauses: dict[str, Any] = {name: {"column": column} for column, name in enumerate(names)}
        return clauses | ({names[-1]: names[-1]} if spec == "qdrant-formula" else {})
    return None


def scores(spec: str, request: dict[str, Any], X: Float64) -> Float64:
    """The scores that the engine gives to candidates."""
    return ENGINES[spec.split("(")[0]](request, X)


def _min_max(column: Float64) -> Float64:
    return (column - column.min()) / (column.max() - column.min())


def _opensearch(request: dict[str, Any], X: Float64) -> Float64:
    processor = request["search_pipeline"]["phase_results_processors"][0]["normalization-processor"]
    weights = processor["combination"]["parameters"]["weights"]
    assert abs(sum(weights) - 1.0) < 1e-9
    columns = [_min_max(X[:, query["column"]]) for query in request["query"]["hybrid"]["queries"]]
    return np.column_stack(columns) @ weights / sum(weights)


def _elasticsearch(request: dict[str, Any], X: Float64) -> Float64:
    total = np.zeros(len(X))
    for part in request["retriever"]["linear"]["retrievers"]:
        column = X[:, part["retriever"]["column"]]
        total += part["weight"] * (column if part["normalizer"] == "none" else _min_max(column))
    return total


def _named(weights: dict[str, float], X: Float64) -> Float64:
    """Features by name, in alphabetical order of the columns."""
    return X @ [weights[name] for name in sorted(weights)]


def _formula(request: dict[str, Any], X: Float64) -> Float64:
    total = np.zeros(len(X))
    for term in request["query"]["formula"]["sum"]:
        weight, variable = term["mult"]
        found = variable.startswith("$score")
        column = request["prefetch"][int(variable[7:-1])]["column"] if found else X.shape[1] - 1
        total += weight * X[:, column]
    return total


def _ranks(request: dict[str, Any], X: Float64) -> Float64:
    rrf = request["query"]["rrf"]
    total = np.zeros(len(X))
    for prefetch, weight in zip(request["prefetch"], rrf["weights"], strict=True):
        position = np.argsort(np.argsort(-X[:, prefetch["column"]]))
        total += 1.0 / ((position + 1) / weight + rrf["k"] - 1)
    return total


ENGINES: dict[str, Callable[[dict[str, Any], Float64], Float64]] = {
    "opensearch-hybrid": _opensearch,
    "elasticsearch-linear": _elasticsearch,
    "vespa": lambda request, X: _named(json.loads(request["input.query(weights)"]), X),
    "qdrant-formula": _formula,
    "qdrant-rrf": _ranks,
    "solr-ltr": lambda request, X: _named(request["params"]["weights"], X),
    "ltr-plugin": lambda request, X: _named(json.loads(request["model"]["model"]["definition"]), X),
}
