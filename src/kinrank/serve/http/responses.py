"""Response bodies, separate from the service's own classes: renaming a field there breaks no client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from kinrank.serve.insight import StoredExample
from kinrank.serve.messages import Fallback, QueryWeights
from kinrank.serve.models import ModelSlot
from kinrank.serve.rollouts import Rollout
from kinrank.serve.search import EngineRequest, SearchResult

Novelty = Annotated[
    float,
    Meta(
        description="Distance from the query to the nearest judged query. Unit: the distance within which 99% of the "
        "judged queries have their nearest other judged query, so a value above 1 is unusual."
    ),
]
Fidelity = Annotated[
    float,
    Meta(
        description="Kendall's tau between the model's ranking of the candidates and that by the weights; null if the "
        "model is linear, so that both are equal."
    ),
]
Reason = Annotated[Fallback, Meta(description="Why the documents are in the engine's order.")]
Unseen = Annotated[
    int,
    Meta(description="Judged queries that a part of the model, such as its trees, learns from only with the next fit."),
]
Teams = Annotated[list[str], Meta(description="For an interleaved ranking, the model that placed each document.")]
Total = Annotated[
    dict[str, Any],
    Meta(description='How many documents match: {"value": 10000, "relation": "gte"} means at least 10,000.'),
]
DocumentFields = Annotated[dict[str, dict[str, Any]], Meta(description="The requested fields of each document, by id.")]
Spread = Annotated[
    dict[str, float],
    Meta(
        description="Standard deviation of each feature among the candidates. Weights times their spread can be "
        "compared between features."
    ),
]
Reasons = Annotated[
    dict[str, dict[str, float]],
    Meta(
        description="For each document, the features that lift or lower it most, and what they add to its score in "
        "comparison with the mean candidate."
    ),
]
R = TypeVar("R", bound=Struct)


class ErrorDetail(Struct):
    """A code for programs and a message for people."""

    code: str
    message: str


class ErrorResponse(Struct):
    """An error."""

    error: ErrorDetail


class RankResponse(Struct):
    """Documents in order, best first."""

    ids: list[str]
    scores: list[float] | None
    model: str | None
    version: str | None
    fallback: Reason | None
    detail: str | None
    novelty: Novelty | None
    teams: Teams | None


class NeighborResponse(Struct):
    """A judged query that the local model was learned from."""

    qid: str
    distance: float
    text: str | None


class ExplanationResponse(Struct):
    """The nearest judged queries, and the weights of the local and the global model."""

    neighbors: list[NeighborResponse]
    n_neighbors: int
    unusual: float
    weights: dict[str, float] | None
    global_weights: dict[str, float] | None
    shares: dict[str, float] | None
    spread: Spread | None
    reasons: Reasons | None


class ExampleResponse(Struct):
    """A query stored with the model, as /v1/rank takes it, and the scores its candidates had at that time."""

    qid: str
    ids: list[str]
    features: list[list[float | None]]
    text: str | None
    vector: list[float] | None
    columns: dict[str, float]
    scores: list[float]


class ExamplesResponse(Struct):
    """The queries stored with the model."""

    feature_names: list[str]
    examples: list[ExampleResponse]


class SearchResponse(RankResponse, kw_only=True):
    """Documents in our order and in the engine's."""

    engine_ids: list[str]
    total: Total | None
    fields: DocumentFields | UnsetType = UNSET
    facets: dict[str, Any] | UnsetType = UNSET
    explanation: ExplanationResponse | UnsetType | None = UNSET
    titles: dict[str, str] | UnsetType = UNSET


class WeightsResponse(Struct):
    """Linear weights of the query, and the engine request that ranks with them."""

    weights: dict[str, float] | None
    model: str | None
    version: str | None
    fallback: Reason | None
    detail: str | None
    normalization: str | None
    fidelity: Fidelity | None
    request: dict[str, Any] | None = None
    params: dict[str, Any] | None = None


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


class ModelStatus(Struct):
    """A model, why the latest version of it was refused, if it was, and the versions of its canary and shadow."""

    default: bool
    refused: str | None
    loaded: LoadedModel | None
    canary: str | None
    shadow: str | None


class ModelsResponse(Struct):
    """All models by name, and whether an engine is attached."""

    models: dict[str, ModelStatus]
    engine: bool


class ReloadResponse(Struct):
    """The model that was loaded."""

    model: str
    version: str


class JudgmentsResponse(Struct):
    """The number of judged queries that were stored."""

    kept: int


class WithdrawResponse(Struct):
    """For how many pairs of query and source judgments were withdrawn."""

    withdrawn: int


class StatusResponse(Struct):
    """State of the process."""

    status: Literal["alive"]


class ReadyResponse(Struct):
    """The version of each model, in the order of the command line: replicas that differ rank differently."""

    status: Literal["ready"]
    versions: list[str]


def to_response(kind: type[R], result: object) -> R:
    """Return a response with the attributes of a result. Raise if the result lacks one of them."""
    return msgspec.convert(result, kind, from_attributes=True)


def to_search_response(result: SearchResult, start: int, size: int) -> SearchResponse:
    """Return the response with `size` documents, from position `start` on."""
    page = slice(start, start + size)
    ranking = msgspec.structs.asdict(to_response(RankResponse, result.ranking))
    ranking["ids"] = ranking["ids"][page]
    ranking["scores"] = ranking["scores"] and ranking["scores"][page]
    response = SearchResponse(
        **ranking,
        engine_ids=result.engine_ids[page],
        total=None if result.hits.total is None else dict(result.hits.total),
    )
    if result.hits.facets:
        response.facets = dict(result.hits.facets)
    if result.fields:
        shown = dict.fromkeys(response.ids + response.engine_ids)
        response.fields = {doc_id: dict(result.fields[doc_id]) for doc_id in shown}
    return response


def to_examples_response(examples: Sequence[StoredExample]) -> ExamplesResponse:
    """Return the response for the queries stored with a model."""
    names = examples[0].candidates.feature_names if examples else None
    return ExamplesResponse(list(names or ()), [_to_example(each) for each in examples])


def _to_example(example: StoredExample) -> ExampleResponse:
    given = example.candidates
    return ExampleResponse(
        qid=example.qid,
        ids=given.ids,
        features=[[None if math.isnan(value) else value for value in row] for row in given.features.tolist()],
        text=given.text,
        vector=None if given.vector is None else given.vector.tolist(),
        columns=dict(given.columns),
        scores=example.scores,
    )


def to_weights_response(result: QueryWeights, request: EngineRequest | None) -> WeightsResponse:
    """Return the response for a query's weights."""
    response = to_response(WeightsResponse, result)
    if request is not None:
        response.request, response.params = request.body, request.params
    return response


def to_model_status(rollout: Rollout, *, default: bool) -> ModelStatus:
    """Return the response for the models of one name."""
    served = rollout.current.current
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
        )
    return ModelStatus(default, rollout.refusal, loaded, _version_of(rollout.canary), _version_of(rollout.shadow))


def _version_of(slot: ModelSlot | None) -> str | None:
    return None if slot is None or slot.current is None else slot.current.version
