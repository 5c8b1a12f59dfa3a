"""Engine requests against JSON schemas of the vendors' documentation, Qdrant's client and a GraphQL library."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import graphql
import jsonschema
import pytest
from qdrant_client import models

from kinrank.engines.targets import TARGETS
from tests.engines.target_cases import CASES, HYBRID, SCHEMAS


def request_of(name: str) -> dict[str, Any]:
    case = CASES[name]
    request: dict[str, Any] = TARGETS.make(case.spec).request(case.weights, case.clauses)
    return request


def validator(name: str) -> jsonschema.protocols.Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def retrievers(request: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request["retriever"]["linear"]["retrievers"]
    return found


# A change to each request that its engine would reject, to show that the schema checks it.
WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "opensearch-hybrid": lambda r: r["query"]["hybrid"]["queries"].extend([{"match_all": {}}] * 4),
    "opensearch-rrf": lambda r: r["query"]["hybrid"]["queries"].extend([{"match_all": {}}] * 4),
    "elasticsearch-rrf": lambda r: r["retriever"]["rrf"].update(rank_constant=0),
    "elasticsearch-linear": lambda r: retrievers(r)[0].update(weight=-1.0),
    "vespa": lambda r: r.update({"input.query(weights)": "{title:}"}),
    "qdrant-formula": lambda r: r["query"]["formula"].update(product=[1.0]),
    "qdrant-rrf": lambda r: r["query"]["rrf"].update(weights=[1.0, -1.0]),
    "weaviate-hybrid": lambda r: r.update(hybrid={}),
    "milvus-weighted": lambda r: r["rerank"]["params"].update(weights=[0.5, 2.0]),
    "lancedb-hybrid": lambda r: r["reranker"].update(weight=2.0),
    "pgvector": lambda r: r["params"].update(weight_0=2.0),
    "azure-hybrid": lambda r: r["vectorQueries"][0].update(weight=0.0),
    "typesense-hybrid": lambda r: r["searches"][0].update(vector_query="text:([0.1, 0.9], alpha: 75)"),
    "solr-ltr": lambda r: r["params"].update(weights={"title": "0.5"}),
    "ltr-plugin": lambda r: r["model"]["model"].update(definition={"title": 0.5}),
}


@pytest.mark.parametrize("name", list(TARGETS))
def test_request_matches_the_documented_schema(name: str) -> None:
    validator(name).validate(request_of(name))


@pytest.mark.parametrize("name", list(TARGETS))
def test_schema_rejects_an_invalid_request(name: str) -> None:
    request = copy.deepcopy(request_of(name))
    WRONG[name](request)
    assert not validator(name).is_valid(request)


@pytest.mark.parametrize("name", ["qdrant-formula", "qdrant-rrf"])
def test_qdrant_client_accepts_the_request(name: str) -> None:
    request = request_of(name)
    parsed = models.QueryRequest.model_validate(request)
    assert parsed.model_dump(mode="json", exclude_unset=True) == request


def test_weaviate_query_is_valid_graphql() -> None:
    schema = graphql.build_schema((SCHEMAS / "weaviate-hybrid.graphql").read_text())
    document = graphql.parse(request_of("weaviate-hybrid")["query"])
    assert graphql.validate(schema, document) == []
    hybrid = document.definitions[0].selection_set.selections[0].selection_set.selections[0].arguments[1]  # type: ignore[attr-defined]
    values = {field.name.value: graphql.value_from_ast_untyped(field.value) for field in hybrid.value.fields}
    assert values == {
        **HYBRID["keyword"],
        **HYBRID["vector"],
        "alpha": 0.75,
        "fusionType": "relativeScoreFusion",
    }
    wrong = graphql.parse(request_of("weaviate-hybrid")["query"].replace("alpha: 0.75", 'alpha: "0.75"'))
    assert graphql.validate(schema, wrong) != []
