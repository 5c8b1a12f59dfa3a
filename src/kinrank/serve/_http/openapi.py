"""The OpenAPI document, built from the table of operations and the structs that parse and write the bodies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import kinrank
from kinrank.serve._http import bodies
from kinrank.serve._http.bodies import EventsBody
from kinrank.serve._http.endpoints import CLIENT_HEADER, MODEL_HEADER, QUERY_HEADER, REVISION_HEADER
from kinrank.serve._http.responses import ErrorResponse, SearchResponse
from kinrank.serve._keys import Role
from kinrank.serve.messages import Neighbor, QueryExplanation, QueryWeights, Ranking

_REF = "#/components/schemas/{name}"
_CANDIDATES = {
    "ids": ["movie-11", "movie-4", "movie-7"],
    "features": [[3.1, 0.2], [2.7, 0.9], [1.4, None]],
    "feature_names": ["bm25", "popularity"],
}
EXAMPLES: dict[type[Any], Any] = {
    bodies.RankBody: _CANDIDATES,
    bodies.WeightsBody: _CANDIDATES,
    bodies.ExplainBody: _CANDIDATES,
    bodies.SearchBody: {"query": "rocky horror", "size": 10},
    bodies.JudgmentsBody: {"queries": [{"qid": "q17", **_CANDIDATES, "grades": [2, 0, 1]}]},
    bodies.WithdrawBody: {"qid": "q17", "source": "panel"},
    bodies.RerankBody: {
        "query": "How do I reset my password?",
        "documents": [{"id": "billing", "text": "Pay by card."}, {"id": "account", "text": "Reset it under Settings."}],
        "top_n": 1,
        "user": "ann",
    },
    EventsBody: {
        "queries": [
            {
                "query_id": "9f4e",
                "user_query": "rocky horror",
                "client_id": "c17",
                "query_response_hit_ids": ["movie-11", "movie-4"],
            }
        ],
        "events": [
            {
                "action_name": "click",
                "query_id": "9f4e",
                "client_id": "c17",
                "event_id": "e1",
                "event_attributes": {"object": {"object_id": "movie-4"}},
            }
        ],
    },
}
_HEADERS = {
    MODEL_HEADER: (
        "The model to use; the first one by default.",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    ),
    REVISION_HEADER: (
        "Wait until the model has learned the judgments up to this revision; 503 if that takes long.",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
    ),
    CLIENT_HEADER: (
        "Who is shown the list, such as the value of a cookie; it is stored as a keyed hash.",
        {"type": "string", "maxLength": 512},
    ),
    QUERY_HEADER: (
        "The id of the list, by default a random one; with that of the first page, further pages have the same order.",
        {"type": "string", "maxLength": 100},
    ),
}


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    """When it is called."""
    handler: Callable[[Request], Awaitable[Response]]
    """Handles the request; its docstring describes the operation."""
    role: Role | None = None
    """The role that permits it; None if no key is needed."""
    body: type[Any] | None = None
    """Struct of the request body."""
    response: type[Any] | None = None
    """Struct of the response; None leaves the operation out of the document."""

    @property
    def ranks(self) -> bool:
        """Whether a model ranks the candidates of a query."""
        return self.body in (bodies.RankBody, bodies.WeightsBody, bodies.ExplainBody, bodies.SearchBody)

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI operation object."""
        summary, _, description = (inspect.getdoc(self.handler) or "").partition(". ")
        document: dict[str, Any] = {
            "summary": summary.rstrip("."),
            "operationId": self.handler.__name__,
            "responses": {
                "200": {"description": "Success.", "content": {bodies.JSON: {"schema": _ref(self.response)}}},
                "default": {"description": "Error.", "content": {bodies.JSON: {"schema": _ref(ErrorResponse)}}},
            },
        }
        if description:
            document["description"] = description
        if self.body is not None:
            content = {bodies.JSON: {"schema": _ref(self.body), "example": EXAMPLES[self.body]}}
            if self.body is bodies.RankBody:
                content[bodies.MSGPACK] = {"schema": _ref(bodies.PackedRankBody)}
            document["requestBody"] = {"required": True, "content": content}
        if self.role is not None:
            document["security"] = [{"key": []}]
        headers = {
            name: _HEADERS[name]
            for name in _HEADERS
            if self.ranks or (self.role is Role.ADMIN and name == MODEL_HEADER)
        }
        parameters = [
            {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
            for name, (description, schema) in headers.items()
        ]
        if parameters:
            document["parameters"] = parameters
        return document


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of the operations that have a response."""
    documented = [operation for operation in operations if operation.response is not None]
    structs = {kind for operation in documented for kind in (operation.body, operation.response)} - {None}
    structs |= {bodies.PackedRankBody, ErrorResponse}
    _, schemas = msgspec.json.schema_components(sorted(structs, key=repr), ref_template=_REF)
    for kind in (Ranking, SearchResponse, QueryWeights, QueryExplanation, Neighbor):
        if kind.__name__ in schemas:  # a service without models has no rankings
            _describe_fields(schemas[kind.__name__], kind)
    paths: dict[str, dict[str, Any]] = {}
    for operation in documented:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.document()
    return {
        "openapi": "3.1.0",
        "info": {"title": "kinrank", "description": kinrank.__doc__, "version": kinrank.__version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _describe_fields(schema: dict[str, Any], kind: type[Any]) -> None:
    """Describe the fields of a result by its docstring. All are always sent, except those that are unset."""
    schema["required"] = [field.name for field in fields(kind) if field.default is not msgspec.UNSET]
    schema["description"] = (inspect.getdoc(kind) or "").partition("\n\n")[0]
    for documented in (kind, *kind.__bases__):
        for names, text in re.findall(r"(?m)^(\w[\w, ]*) : .*\n((?:    .*\n?)+)", inspect.getdoc(documented) or ""):
            for name in names.split(", "):
                schema["properties"][name]["description"] = " ".join(text.split())


def _ref(kind: type[Any] | None) -> dict[str, str]:
    return {} if kind is None else {"$ref": _REF.format(name=kind.__name__)}
