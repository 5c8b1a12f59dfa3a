"""The bodies of requests, JSON or MessagePack: one definition for parsing, bounds and the OpenAPI document.

Parsed by msgspec, at a fraction of what a general validator costs: a hundred candidates of 46 features are 4,600
numbers.
"""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from kinrank.arrays import Float32
from kinrank.errors import DataError
from kinrank.serve.messages import Candidates, Judged

JSON = "application/json"
MSGPACK = "application/msgpack"

MOST_CANDIDATES = 1_000
MOST_FEATURES = 2_000
MOST_NUMBERS = 8_192
MOST_JUDGED = 100

Name = Annotated[str, Meta(min_length=1, max_length=512)]
ModelName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
Number = Annotated[float, Meta(ge=-3e38, le=3e38)]  # what float32 holds
Ids = Annotated[list[Name], Meta(min_length=1, max_length=MOST_CANDIDATES)]
Names = Annotated[list[Name], Meta(min_length=1, max_length=MOST_FEATURES)]
Row = Annotated[list[Number | None], Meta(min_length=1, max_length=MOST_FEATURES)]
Rows = Annotated[list[Row], Meta(min_length=1, max_length=MOST_CANDIDATES)]
Vector = Annotated[list[Number], Meta(min_length=1, max_length=MOST_NUMBERS)]
Columns = Annotated[dict[Name, Number], Meta(max_length=100)]
Teams = Annotated[list[ModelName], Meta(min_length=2, max_length=2)]
Text = Annotated[str, Meta(min_length=1, max_length=2_000)]
Size = Annotated[int, Meta(ge=1, le=MOST_CANDIDATES)]


class RankBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """A query's candidates in the engine's order, a row of features each; null where a value is missing."""

    ids: Ids
    features: Rows
    feature_names: Names | None = None
    vector: Vector | None = None
    columns: Columns = {}
    interleave: Teams | None = None


class PackedRankBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The same in MessagePack: features and vector as little-endian float32, row by row."""

    ids: Ids
    features: bytes
    feature_names: Names | None = None
    vector: bytes | None = None
    columns: Columns = {}
    interleave: Teams | None = None


class WeightsBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Candidates as for ranking; or, where an engine is attached, the text of a query that it finds them for."""

    ids: Ids | None = None
    features: Rows | None = None
    feature_names: Names | None = None
    vector: Vector | None = None
    columns: Columns = {}
    query: Text | None = None
    size: Size = 10


class SearchBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a user typed."""

    query: Text
    size: Size = 10
    window: Size = 100
    vector: Vector | None = None
    columns: Columns = {}
    explain: bool = False


class JudgedBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """A judged query: candidates, features and a grade each."""

    qid: Name
    ids: Ids
    features: Rows
    grades: Annotated[list[Number], Meta(min_length=1, max_length=MOST_CANDIDATES)]
    feature_names: Names | None = None
    vector: Vector | None = None
    columns: Columns = {}


class JudgmentsBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Judged queries for a model to learn from."""

    queries: Annotated[list[JudgedBody], Meta(min_length=1, max_length=MOST_JUDGED)]
    model: ModelName | None = None


class ReloadBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which model to load again from its folder."""

    model: ModelName | None = None


B = TypeVar("B")
_JSON: dict[type[Any], msgspec.json.Decoder[Any]] = {
    body: msgspec.json.Decoder(body) for body in (RankBody, WeightsBody, SearchBody, JudgmentsBody, ReloadBody)
}
_PACKED = msgspec.msgpack.Decoder(PackedRankBody)


def parse(raw: bytes, body: type[B]) -> B:
    """A JSON body; a `DataError` that says where it is not what it must be."""
    try:
        parsed: B = _JSON[body].decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DataError(str(error)) from None
    return parsed


def parse_rank(raw: bytes, *, packed: bool) -> tuple[Candidates, tuple[str, str] | None]:
    """The candidates of a ranking request, and the two models that are to take turns."""
    if packed:
        try:
            body = _PACKED.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DataError(str(error)) from None
        width, rest = divmod(len(body.features), 4 * len(body.ids))
        if rest or not 1 <= width <= MOST_FEATURES:
            raise DataError(
                f"features must be float32, as many for each of the {len(body.ids)} ids, got {len(body.features)} bytes"
            )
        features = np.frombuffer(body.features, dtype="<f4").reshape(len(body.ids), width)
        return candidates_of(body, features, _floats(body.vector)), _teams(body.interleave)
    asked = parse(raw, RankBody)
    return candidates_of(asked, matrix(asked.features)), _teams(asked.interleave)


def matrix(rows: list[list[float | None]]) -> Float32:
    """Rows of numbers as an array; null becomes NaN."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise DataError("rows of features have different lengths: give every candidate the same features")
    try:
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.float32, count=width * len(rows))
    except TypeError:  # fromiter takes no None, and is faster for it
        return np.array(rows, dtype=np.float32)
    return flat.reshape(len(rows), width)


def candidates_of(body: Any, features: Float32, vector: Float32 | None = None) -> Candidates:
    """The candidates that a body names."""
    given = getattr(body, "vector", None)
    return Candidates(
        body.ids,
        features,
        None if body.feature_names is None else tuple(body.feature_names),
        np.array(given, dtype=np.float32) if vector is None and isinstance(given, list) else vector,
        body.columns,
    )


def judged_of(body: JudgedBody) -> Judged:
    """A judged query of a body."""
    if len(body.grades) != len(body.ids):
        raise DataError(f"query {body.qid!r} has {len(body.ids)} ids and {len(body.grades)} grades: give one each")
    return Judged(body.qid, candidates_of(body, matrix(body.features)), body.grades)


def _floats(raw: bytes | None) -> Float32 | None:
    if raw is None:
        return None
    if len(raw) % 4 or not 4 <= len(raw) <= 4 * MOST_NUMBERS:
        raise DataError(f"vector must be 1 to {MOST_NUMBERS} float32 numbers, got {len(raw)} bytes")
    return np.frombuffer(raw, dtype="<f4")


def _teams(names: list[str] | None) -> tuple[str, str] | None:
    return None if names is None else (names[0], names[1])
