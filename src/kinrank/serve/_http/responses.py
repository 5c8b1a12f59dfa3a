"""Response bodies other than the results of `kinrank.serve.messages`, which are sent as they are; and errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kinrank import errors
from kinrank.memory.memory import Hit
from kinrank.serve._http.bodies import JSON, RerankBody, RerankDocument, SearchBody
from kinrank.serve._models import ModelSlot
from kinrank.serve._search import SearchResult
from kinrank.serve.messages import Fallback, QueryExplanation, Ranking

Unseen = Annotated[
    int,
    Meta(description="Judged queries that a part of the model, such as its trees, learns from only with the next fit."),
]
Failing = Annotated[
    list[str], Meta(description="What has been failing in the background: events, set-aside. The log has the reason.")
]
Unsigned = Annotated[
    int,
    Meta(
        description="Queries that this service has not handed out to their clients. They count as those of one client."
    ),
]
Total = Annotated[
    dict[str, Any],
    Meta(description='How many documents match: {"value": 10000, "relation": "gte"} means at least 10,000.'),
]
Remembered = Annotated[
    list[str], Meta(description="The candidates that the engine did not find, but people chose for this query.")
]
RememberedProblem = Annotated[str, Meta(description="Why remembered documents could not be added.")]
Kin = Annotated[
    str,
    Meta(
        description="The engine found nothing for the query; this judged query is spelled almost like it. Documents, "
        "if there are any, are those of this query."
    ),
]
DocumentFields = Annotated[dict[str, dict[str, Any]], Meta(description="The requested fields of each document, by id.")]


class ErrorDetail(Struct):
    """A code for programs and a message for people."""

    code: str
    message: str


class ErrorResponse(Struct):
    """An error."""

    error: ErrorDetail


@dataclass(frozen=True, kw_only=True)
class SearchResponse(Ranking):
    """Documents in our order and in the engine's; see `Ranking` for the other fields."""

    engine_ids: list[str]
    total: Total | None
    fields: DocumentFields | UnsetType = UNSET
    facets: dict[str, Any] | UnsetType = UNSET
    explanation: QueryExplanation | UnsetType | None = UNSET
    remembered: Remembered | UnsetType = UNSET
    remembered_problem: RememberedProblem | UnsetType = UNSET
    kin: Kin | UnsetType = UNSET


class LoadedModel(Struct):
    """A model in use."""

    version: str
    ranker: str
    feature_names: list[str]
    judged_queries: int | None
    judgments_learned: int
    unseen_judgments: Unseen
    fit_recommended: bool
    self_tested: bool
    remarks: list[str]
    evidence_revision: Annotated[int, Meta(description="The revision of what people chose that the model ranks by.")]


class ModelStatus(Struct):
    """A model, and why the latest version of it was refused, if it was."""

    default: bool
    refused: str | None
    loaded: LoadedModel | None


class ModelsResponse(Struct):
    """All models by name, whether an engine is attached, and whether events are accepted."""

    models: dict[str, ModelStatus]
    engine: bool
    events: bool


class ReloadResponse(Struct):
    """The model that was loaded."""

    model: str
    version: str


class JudgmentsResponse(Struct):
    """The number of judged queries that were stored."""

    kept: int


class EventsResponse(Struct):
    """The numbers of queries and events that were stored, and why others were not."""

    queries: int
    events: int
    ignored: dict[str, int]
    unsigned: Unsigned | UnsetType = UNSET


class WithdrawResponse(Struct):
    """For how many pairs of query and source judgments were withdrawn."""

    withdrawn: int


class RerankedDocument(Struct, omit_defaults=True):
    """A document as it was sent."""

    text: str
    id: str | int | None = None


class RerankResult(Struct):
    """A document in its new place."""

    index: Annotated[int, Meta(description="Its place in the request, from 0.")]
    relevance_score: Annotated[float, Meta(description="From 0 to 1; compare it within a list only.")]
    reason: str
    document: RerankedDocument | UnsetType = UNSET


class RerankUsage(Struct, frozen=True):
    """What clients of Jina and vLLM count."""

    total_tokens: Annotated[int, Meta(description="Always 0: nothing is paid by token.")] = 0


class RerankResponse(Struct):
    """Documents, best first."""

    id: Annotated[str, Meta(description="The list, which events name as query_id.")]
    results: list[RerankResult]
    fallback: Annotated[Fallback | UnsetType, Meta(description="Why memory did not rank: late, model-error.")] = UNSET
    model: Annotated[str, Meta(description="As in the request.")] = "memory"
    usage: RerankUsage = RerankUsage()


class StatusResponse(Struct):
    """State of the process."""

    status: Literal["alive"]


class ReadyResponse(Struct):
    """The version of each model, in the order of the command line: replicas that differ rank differently."""

    status: Literal["ready"]
    versions: list[str]
    failing: Failing | UnsetType = UNSET


def json_response(response: object, headers: dict[str, str] | None = None) -> Response:
    """Return a response in JSON."""
    return Response(msgspec.json.encode(response), headers=headers, media_type=JSON)


def to_rerank_response(
    name: str, hits: Sequence[Hit], body: RerankBody, fallback: Fallback | None = None
) -> RerankResponse:
    """Return the response for documents in a new order."""

    def document(given: str | RerankDocument) -> RerankedDocument:
        return RerankedDocument(given) if isinstance(given, str) else RerankedDocument(given.text, given.id)

    results = [
        RerankResult(
            hit.place,
            1 / (1 + math.exp(-hit.score)),
            hit.reason,
            document(body.documents[hit.place]) if body.return_documents else UNSET,
        )
        for hit in hits
    ]
    return RerankResponse(name, results, fallback or UNSET, body.model or "memory")


def to_search_response(result: SearchResult, body: SearchBody) -> SearchResponse:
    """Return the documents that a request asks for."""
    page = slice(body.start, body.start + body.size)
    ranking, hits = result.ranking, result.hits
    ids, engine_ids = ranking.ids[page], result.engine_ids[page]
    shown = dict.fromkeys(ids + engine_ids)
    return SearchResponse(
        **{
            **{field.name: getattr(ranking, field.name) for field in fields(ranking)},
            "ids": ids,
            "scores": ranking.scores and ranking.scores[page],
        },
        engine_ids=engine_ids,
        total=None if hits.total is None else dict(hits.total),
        fields={doc_id: dict(result.fields[doc_id]) for doc_id in shown} if result.fields else UNSET,
        facets=dict(hits.facets) if hits.facets else UNSET,
        explanation=result.explanation if body.explain else UNSET,
        remembered=result.remembered or UNSET,
        remembered_problem=result.problem or UNSET,
        kin=result.kin or UNSET,
    )


def to_model_status(slot: ModelSlot, *, default: bool) -> ModelStatus:
    """Return the response for a model."""
    served = slot.current
    loaded = None
    if served is not None:
        names = list(served.ranker.feature_names_)
        loaded = LoadedModel(
            version=served.version,
            ranker=served.ranker_name,
            feature_names=names,
            judged_queries=served.judged_queries,
            judgments_learned=served.judgments,
            unseen_judgments=served.unseen_judgments,
            fit_recommended=served.fit_recommended,
            self_tested=served.tested,
            remarks=served.base.remarks(),
            evidence_revision=served.evidence,
        )
    return ModelStatus(default, slot.refusal, loaded)


RETRY_SECONDS = "1"


class HttpError(Exception):
    """An error response."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


STATUS: dict[type[Exception], tuple[int, str]] = {
    errors.UnknownModelError: (404, "unknown-model"),
    errors.ForbiddenFieldError: (403, "forbidden-field"),
    errors.ModelNotLoadedError: (503, "no-model"),
    errors.UnsupportedByModelError: (409, "unable-model"),
    errors.RejectedModelError: (409, "refused-model"),
    errors.NotStoredError: (503, "not-kept"),
    errors.StaleReplicaError: (503, "stale"),
    errors.StoreUnavailableError: (503, "store-down"),
    errors.EngineRefusedError: (502, "engine-refused"),
    errors.EngineFailedError: (502, "engine-failed"),
    errors.MissingIndexError: (502, "engine-refused"),
    errors.EngineError: (503, "engine-down"),
    errors.EncoderError: (503, "encoder-error"),
    errors.DataError: (422, "invalid"),
    errors.ParameterError: (422, "invalid"),
}
"""Status and code by class; the most specific class counts. Any other exception is unexpected: a 500."""


def to_http_error(error: Exception) -> HttpError:
    """Return the error response for an exception."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, HTTPException):
        return HttpError(error.status_code, "http", str(error.detail))
    for kind in type(error).__mro__:
        if kind in STATUS:
            return HttpError(*STATUS[kind], str(error))
    return HttpError(500, "internal", "the service failed; the log has the traceback under this request id")


def error_response(error: HttpError) -> Response:
    """Return the response to send."""
    headers = {}
    if error.status == 503:
        headers["Retry-After"] = RETRY_SECONDS
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = ErrorResponse(ErrorDetail(error.code, error.message))
    return Response(msgspec.json.encode(body), error.status, headers, "application/json")
