"""Engine requests against JSON schemas of the vendors' documentation, and Qdrant's client."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from qdrant_client import models

from kinrank.engines.targets import TARGETS
from tests.engines.target_cases import CASES, SCHEMAS


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
    "elasticsearch-linear": lambda r: retrievers(r)[0].update(weight=-1.0),
    "qdrant-formula": lambda r: r["query"]["formula"].update(product=[1.0]),
}


@pytest.mark.parametrize("name", list(TARGETS))
def test_request_matches_the_documented_schema(name: str) -> None:
    validator(name).validate(request_of(name))


@pytest.mark.parametrize("name", list(TARGETS))
def test_schema_rejects_an_invalid_request(name: str) -> None:
    request = copy.deepcopy(request_of(name))
    WRONG[name](request)
    assert not validator(name).is_valid(request)


def test_qdrant_client_accepts_the_request() -> None:
    request = request_of("qdrant-formula")
    parsed = models.QueryRequest.model_validate(request)
    assert parsed.model_dump(mode="json", exclude_unset=True) == request
