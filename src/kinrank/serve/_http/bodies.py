"""Request bodies in JSON or MessagePack. One definition parses, validates and documents each of them.

They are parsed by msgspec, which is much faster than a general validator: a hundred candidates with 46 features are
4,600 numbers.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from kinrank.arrays import Float32
from kinrank.data.ubi import changes_list, epoch_seconds
from kinrank.errors import DataError
from kinrank.serve._events.log import Click, Shown
from kinrank.serve._reranking import LIST, UNDO, VOTES, Vote
from kinrank.serve.messages import CandidateSet, JudgedQuery

JSON = "application/json"
MSGPACK = "application/msgpack"

LARGE_BODY = 256 << 10
"""Bytes above which a body is parsed in another thread; it takes more than a few milliseconds."""
_PAUSE = 0.0004  # seconds
MAX_CANDIDATES = 1_000
MAX_FEATURES = 2_000
MAX_VECTOR = 8_192
MAX_JUDGED = 100

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Number = Annotated[float, Meta(ge=-3e38, le=3e38)]  # the range of float32
Ids = Annotated[list[Name], Meta(min_length=1, max_length=MAX_CANDIDATES)]
Names = Annotated[list[Name], Meta(min_length=1, max_length=MAX_FEATURES)]
Row = Annotated[list[Number | None], Meta(min_length=1, max_length=MAX_FEATURES)]
# Rows are decoded one by one: another thread can run between two of them, and not within one call of the decoder.
RawRow = Annotated[msgspec.Raw, Meta(extra_json_schema=msgspec.json.schema(Row))]
Rows = Annotated[list[RawRow], Meta(min_length=1, max_length=MAX_CANDIDATES)]
Vector = Annotated[list[Number], Meta(min_length=1, max_length=MAX_VECTOR)]
Columns = Annotated[dict[Name, Number], Meta(max_length=100)]
Arm = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description="The arm of an A/B test that the caller has chosen. It is logged, and returned.",
    ),
]
Source = Annotated[
    str, Meta(max_length=512, description="Who judged, such as the name of a person, a panel or a click model.")
]
Text = Annotated[str, Meta(min_length=1, max_length=2_000)]
Size = Annotated[int, Meta(ge=1, le=MAX_CANDIDATES)]
Start = Annotated[int, Meta(ge=0, lt=MAX_CANDIDATES)]
Fields = Annotated[list[Name], Meta(max_length=100)]
Facets = Annotated[dict[Name, dict[str, Any]], Meta(max_length=50)]
Keys = Annotated[
    dict[Name, Annotated[list[Name], Meta(min_length=1, max_length=MAX_CANDIDATES)]],
    Meta(description="Other values of each candidate by name, such as its site or brand, which memory keeps."),
]
Pinned = Annotated[
    list[Name],
    Meta(
        max_length=MAX_CANDIDATES,
        description="Documents that keep the places in which they come; others are ranked around them.",
    ),
]
AnyId = Name | int
AnyIds = Annotated[list[AnyId], Meta(min_length=1, max_length=MAX_CANDIDATES)]


class _Described(Struct, forbid_unknown_fields=True, kw_only=True):
    """What describes a query and its candidates besides their features."""

    feature_names: Names | None = None
    vector: Vector | None = None
    columns: Columns = {}
    keys: Keys = {}
    text: Text | None = None


class ExplainBody(_Described, forbid_unknown_fields=True, kw_only=True):
    """Candidates in the engine's order, with one row of features each; null is a missing value."""

    ids: Ids
    features: Rows


class RankBody(ExplainBody, forbid_unknown_fields=True, kw_only=True):
    """Candidates to rank."""

    pinned: Pinned = []
    arm: Arm | None = None


class PackedRankBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """A `RankBody` in MessagePack, with features and vector as little-endian float32, row by row."""

    ids: Ids
    pinned: Pinned = []
    features: bytes
    feature_names: Names | None = None
    vector: bytes | None = None
    columns: Columns = {}
    keys: Keys = {}
    text: Text | None = None
    arm: Arm | None = None


class WeightsBody(_Described, forbid_unknown_fields=True, kw_only=True):
    """Candidates as for ranking or, if an engine is attached, the text of a query."""

    ids: Ids | None = None
    features: Rows | None = None
    query: Text | None = None
    size: Size = 10
    filter: dict[str, Any] | None = None
    fields: Fields = []
    facets: Facets = {}


class SearchBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The text of a query."""

    query: Text
    pinned: Pinned = []
    start: Start = msgspec.field(default=0, name="from")
    size: Size = 10
    window: Size = 100
    vector: Vector | None = None
    columns: Columns = {}
    filter: dict[str, Any] | None = None
    fields: Fields = []
    facets: Facets = {}
    explain: bool = False
    arm: Arm | None = None


class JudgedBody(_Described, forbid_unknown_fields=True, kw_only=True):
    """A judged query: candidates with features and grades; without features, the attached engine computes them."""

    qid: AnyId
    ids: AnyIds
    features: Rows | None = None
    grades: Annotated[list[Number], Meta(min_length=1, max_length=MAX_CANDIDATES)]


class JudgmentsBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Judged queries that a model learns from."""

    queries: Annotated[list[JudgedBody], Meta(min_length=1, max_length=MAX_JUDGED)]
    source: Source = ""


class WithdrawBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query, the source, or the query and source whose judgments are withdrawn."""

    qid: AnyId | None = None
    source: Source | None = None


class RerankDocument(Struct):
    """A document. Further fields are ignored."""

    text: str
    id: AnyId | None = None


class RerankBody(Struct, kw_only=True):
    """A question and documents in the order of a retriever, as Cohere, Jina and vLLM take them.

    Further fields are ignored.
    """

    query: str
    documents: Annotated[list[str | RerankDocument], Meta(min_length=1, max_length=MAX_CANDIDATES)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool | None = None
    scores: Annotated[
        list[Number] | None,
        Meta(description="Those of the retriever, higher is better; without them the order counts."),
    ] = None
    user: Annotated[str | None, Meta(description="Who asks: one person has one vote. Only a hash is stored.")] = None
    model: Annotated[str | None, Meta(description="Any; the answer repeats it.")] = None


B = TypeVar("B")
_BODIES: tuple[type[Any], ...] = (
    SearchBody,
    WithdrawBody,
    ExplainBody,
    RankBody,
    JudgmentsBody,
    WeightsBody,
    RerankBody,
)
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {body: msgspec.json.Decoder(body) for body in _BODIES}
_ROW_DECODER = msgspec.json.Decoder(Row)
_PACKED_DECODER = msgspec.msgpack.Decoder(PackedRankBody)
INVALID = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def parse(raw: bytes, body: type[B]) -> B:
    """Parse a JSON body. Raise a `DataError` that points to the first invalid value."""
    try:
        parsed: B = _DECODERS[body].decode(raw)
    except INVALID as error:
        raise DataError(str(error)) from None
    return parsed


def parse_rank(raw: bytes, *, packed: bool) -> tuple[CandidateSet, str | None]:
    """Parse a ranking request. Return its candidates and the arm that it names, if any."""
    if packed:
        return _parse_packed_rank(raw)
    body = parse(raw, RankBody)
    return to_candidates(body, to_matrix(body.features, raw), to_vector(body.vector)), body.arm


def parse_explain(raw: bytes) -> CandidateSet:
    """Parse a request for an explanation."""
    body = parse(raw, ExplainBody)
    return to_candidates(body, to_matrix(body.features, raw), to_vector(body.vector))


def parse_weights(raw: bytes) -> tuple[WeightsBody, CandidateSet | None]:
    """Parse a request for weights. Return its candidates, too; None if an engine finds them."""
    body = parse(raw, WeightsBody)
    if body.ids is None or body.features is None:
        return body, None
    return body, to_candidates(body, to_matrix(body.features, raw), to_vector(body.vector))


def parse_judgments(raw: bytes) -> tuple[JudgmentsBody, list[JudgedQuery | JudgedBody]]:
    """Parse a request with judgments. Return its judged queries, too; a body if an engine computes the features."""
    body = parse(raw, JudgmentsBody)
    return body, [
        query if query.features is None and query.text is not None else _to_judged_query(query, raw, number)
        for number, query in enumerate(body.queries)
    ]


def _parse_packed_rank(raw: bytes) -> tuple[CandidateSet, str | None]:
    try:
        body = _PACKED_DECODER.decode(raw)
    except INVALID as error:
        raise DataError(str(error)) from None
    n_candidates = len(body.ids)
    width, rest = divmod(len(body.features), 4 * n_candidates)
    if rest or not 1 <= width <= MAX_FEATURES:
        raise DataError(
            f"features must be float32 values, equally many for each of the {n_candidates} ids, "
            f"got {len(body.features)} bytes"
        )
    features = np.frombuffer(body.features, dtype="<f4").reshape(n_candidates, width)
    return to_candidates(body, features, _unpack_vector(body.vector)), body.arm


def to_matrix(rows: Sequence[Any], raw: bytes, path: str = "$.features") -> Float32:
    """Return rows of numbers, not parsed yet, as an array; null becomes NaN. They are at a path of a body."""
    matrix = np.empty((len(rows), 0), dtype=np.float32)
    is_large = len(raw) > LARGE_BODY
    for number, given in enumerate(rows):
        row = _parse_row(given, f"{path}[{number}]")
        if is_large:  # in a thread of its own: without a pause it would keep the interpreter for 5 ms at a time
            time.sleep(_PAUSE)
        if number == 0:
            matrix = np.empty((len(rows), len(row)), dtype=np.float32)
        if len(row) != matrix.shape[1]:
            raise DataError("rows of features have different lengths: send the same features for every candidate")
        try:
            matrix[number] = np.fromiter(row, dtype=np.float32, count=len(row))
        except TypeError:  # fromiter is faster but does not accept None
            matrix[number] = row
    return matrix


def _parse_row(raw: msgspec.Raw, path: str) -> list[float | None]:
    try:
        row: list[float | None] = _ROW_DECODER.decode(raw)
    except INVALID as error:
        raise DataError(str(error).replace("`$", f"`{path}")) from None
    return row


def to_vector(numbers: list[float] | None) -> Float32 | None:
    """Return a query vector as an array."""
    return None if numbers is None else np.array(numbers, dtype=np.float32)


def to_candidates(
    body: RankBody | PackedRankBody | WeightsBody | ExplainBody | JudgedBody, features: Float32, vector: Float32 | None
) -> CandidateSet:
    """Return the candidates of a body."""
    text = body.text or (body.query if isinstance(body, WeightsBody) else None)
    names = None if body.feature_names is None else tuple(body.feature_names)
    ids = [str(each) for each in body.ids or ()]
    pinned = frozenset(body.pinned if isinstance(body, RankBody | PackedRankBody) else ())
    return CandidateSet(ids, features, names, vector, body.columns, text, body.keys, pinned)


def _to_judged_query(body: JudgedBody, raw: bytes, number: int) -> JudgedQuery:
    if len(body.grades) != len(body.ids):
        raise DataError(f"query {body.qid!r} has {len(body.ids)} ids and {len(body.grades)} grades: send one per id")
    if body.features is None:
        raise DataError(f"query {body.qid!r} has no features: send them, or its text if an engine is attached")
    features = to_matrix(body.features, raw, f"$.queries[{number}].features")
    return JudgedQuery(str(body.qid), to_candidates(body, features, to_vector(body.vector)), body.grades)


def parse_rerank(raw: bytes) -> RerankBody:
    """Parse a request with documents of any retriever."""
    body = parse(raw, RerankBody)
    if body.scores is not None and len(body.scores) != len(body.documents):
        raise DataError(f"got {len(body.documents)} documents and {len(body.scores)} scores: send one per document")
    return body


def _unpack_vector(raw: bytes | None) -> Float32 | None:
    if raw is None:
        return None
    if len(raw) % 4 or not 4 <= len(raw) <= 4 * MAX_VECTOR:
        raise DataError(f"vector must be 1 to {MAX_VECTOR} float32 values, got {len(raw)} bytes")
    return np.frombuffer(raw, dtype="<f4")


# --- bodies of /v1/events: queries and events of User Behavior Insights (UBI) 1.3, as its collectors send them --------


ACTIONS = {"click": 1.0}
"""The value of each action that counts, on lists of a search."""
MAX_RECORDS = 1_000
_LATEST = 1e11  # seconds since 1970; a larger number is no time

Word = Annotated[str, Meta(max_length=512)]
Timestamp = Annotated[str, Meta(max_length=100)] | int | float


class UbiObject(Struct):
    """The document that an event is about."""

    object_id: AnyId | None = None


class UbiAttributes(Struct):
    """What an event is about; further attributes are ignored."""

    object: UbiObject | None = None


class UbiRecord(Struct, kw_only=True):
    """A query with the documents that were shown or, with `action_name`, an event. Further fields are ignored."""

    query_id: Word | None = None
    client_id: Word | None = None
    timestamp: Timestamp | None = None
    user_query: Annotated[str, Meta(max_length=2_000)] | None = None
    query_response_hit_ids: Annotated[list[AnyId], Meta(max_length=MAX_CANDIDATES)] | None = None
    query_attributes: Any = None
    action_name: Word | None = None
    event_id: Word | None = None
    event_attributes: UbiAttributes | None = None


Records = Annotated[list[UbiRecord], Meta(max_length=MAX_RECORDS)]


class EventsBody(UbiRecord, kw_only=True):
    """Queries and events of UBI 1.3. A single one, and an array of both, are taken as well."""

    queries: Records = []
    events: Records = []


_DECODER = msgspec.json.Decoder(Records | EventsBody)


@dataclass
class _Batch:
    """What a body reports."""

    lists: list[Shown] = field(default_factory=list)
    clicks: list[Click] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    """What people did with documents of lists of `RerankBody`."""
    ignored: Counter[str] = field(default_factory=Counter)
    """How many records do not count, by reason."""

    def add(self, record: UbiRecord, model: str, now: float | None) -> None:
        """Add a record, or count why it does not count."""
        if not record.query_id:
            self.ignored["no query id"] += 1
        elif record.action_name is None:
            self._add_query(record, record.query_id, model, now)
        else:
            self._add_event(record, record.query_id, record.action_name)

    def _add_query(self, record: UbiRecord, query_id: str, model: str, now: float | None) -> None:
        if isinstance(record.query_attributes, dict) and changes_list(record.query_attributes):
            self.ignored["filtered, sorted or a later page"] += 1
            return
        documents = [str(document) for document in record.query_response_hit_ids or ()]
        time = _to_seconds(record.timestamp, now)
        client = record.client_id or None
        self.lists.append(Shown(query_id, model, record.user_query or "", documents, client, time))

    def _add_event(self, record: UbiRecord, query_id: str, action: str) -> None:
        about = record.event_attributes and record.event_attributes.object
        reranked = query_id.startswith(LIST)
        if action not in ((*VOTES, UNDO) if reranked else ACTIONS):
            self.ignored["action does not count"] += 1
        elif not about or about.object_id is None:
            self.ignored["no document"] += 1
        elif reranked:
            self.votes.append(Vote(query_id, action, about.object_id, record.client_id or None))
        else:
            self.clicks.append(Click(_event_id(record), query_id, str(about.object_id), ACTIONS[action]))


def parse_events(raw: bytes, model: str, now: float | None) -> _Batch:
    """Parse a body with queries and events. Raise a `DataError` that points to the first invalid value.

    Queries without a time get `now`, in seconds since 1970; None: when they are stored.
    """
    try:
        body = _DECODER.decode(raw)
    except INVALID as error:
        raise DataError(str(error)) from None
    if b"\\u0000" in raw:
        raise DataError("ids and texts must not contain NUL characters")
    batch = _Batch()
    if isinstance(body, EventsBody):
        is_single = body.query_id is not None or body.action_name is not None
        body = [*body.queries, *body.events, *([body] if is_single else [])]
    for record in body:
        batch.add(record, model, now)
    return batch


def _event_id(record: UbiRecord) -> str:
    """Return the id of an event; without one, a hash of what it says: sent again, it is the same event."""
    if record.event_id:
        return record.event_id
    return hashlib.blake2b(msgspec.json.encode(record), digest_size=16).hexdigest()


def _to_seconds(timestamp: Timestamp | None, now: float | None) -> float | None:
    """Return a time in seconds since 1970, given as ISO 8601 or as a number in any unit; now if it is neither."""
    if timestamp is None:
        return now
    try:
        seconds = epoch_seconds(float(timestamp))
    except (ValueError, OverflowError):
        try:
            parsed = datetime.fromisoformat(str(timestamp).strip())
            seconds = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return now
    return seconds if math.isfinite(seconds) and 0 <= seconds < _LATEST else now
