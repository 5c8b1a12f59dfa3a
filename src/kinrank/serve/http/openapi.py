"""The OpenAPI document: schemas from what parses the bodies, examples that run."""

from __future__ import annotations

from typing import Any

import msgspec

from kinrank.serve.http import bodies
from kinrank.serve.messages import Ranking, Weights

_REF = "#/components/schemas/{name}"
_TYPES = (
    bodies.RankBody,
    bodies.PackedRankBody,
    bodies.WeightsBody,
    bodies.SearchBody,
    bodies.JudgmentsBody,
    bodies.ReloadBody,
    Ranking,
    Weights,
)
_CANDIDATES = {
    "ids": ["movie-11", "movie-4", "movie-7"],
    "features": [[3.1, 0.2], [2.7, 0.9], [1.4, None]],
    "feature_names": ["bm25", "popularity"],
}
EXAMPLES: dict[str, Any] = {
    "RankBody": _CANDIDATES,
    "WeightsBody": _CANDIDATES,
    "SearchBody": {"query": "rocky horror", "size": 10},
    "JudgmentsBody": {"queries": [{"qid": "q17", **_CANDIDATES, "grades": [2, 0, 1]}]},
    "ReloadBody": {"model": "default"},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def components() -> dict[str, Any]:
    """The schemas by name."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    return {**schemas, "Error": _ERROR}


def operation(
    body: str | None, answer: str | None, *, packed: bool = False, open_to_all: bool = False
) -> dict[str, Any]:
    """What FastAPI cannot know of an endpoint that reads its body by itself."""
    content: dict[str, Any] = {"application/json": {"schema": _ref(answer) if answer else {"type": "object"}}}
    extra: dict[str, Any] = {
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {
                "description": "No result, and why.",
                "content": {"application/json": {"schema": _ref("Error")}},
            },
        }
    }
    if body is not None:
        taken: dict[str, Any] = {"application/json": {"schema": _ref(body), "example": EXAMPLES[body]}}
        if packed:
            taken[bodies.MSGPACK] = {"schema": _ref(f"Packed{body}")}
        extra["requestBody"] = {"required": body != "ReloadBody", "content": taken}
    if not open_to_all:
        extra["security"] = [{"key": []}]
    return extra


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}
