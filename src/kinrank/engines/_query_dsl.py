"""Requests in the query language that Elasticsearch and OpenSearch share, and what their hits say. Nothing is sent.

Per-query weights become a query whose scores order documents as ``features @ weights`` does:

- A clause with a positive weight w gets the boost w.
- Clauses with negative weights are summed with boosts |w| and subtracted from an upper bound of that sum, the same for
  every document, since scores must not be negative.
- Values of the document are added by one script. Its text is the same for every query (the weights are parameters),
  so the engine compiles it once. It ends with an order-preserving map to positive numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float32
from kinrank.engines.features import (
    Clause,
    FeatureSet,
    FieldValue,
    QueryLength,
    Script,
    TextFeature,
    ValueFeature,
    VectorSimilarity,
    count_terms,
    painless_string,
)
from kinrank.errors import ParameterError

# --- what a search must match and return besides the text of the query, and what callers of a service may ask for -----


BUCKETS = ("terms", "range", "date_range", "histogram", "date_histogram", "missing", "filter")
"""Aggregations that may have others inside."""
METRICS = ("min", "max", "avg", "sum", "stats", "value_count", "cardinality")
_NESTED = ("aggs", "aggregations")
_MAX_DEPTH = 3
_MAX_FACETS = 50
_MAX_BUCKETS = 1000
_HISTOGRAM_BUCKETS = 100  # as many as a chart shows; the engine knows the number only afterwards
_MAX_TOTAL = 10_000


def check_facets(facets: Mapping[str, Clause]) -> None:
    """Raise `ParameterError` unless all facets are aggregations of allowed kinds and size.

    Examples
    --------
    >>> check_facets({"genres": {"terms": {"field": "genres"}, "aggs": {"first": {"min": {"field": "year"}}}}})
    >>> check_facets({"first": {"top_hits": {"size": 1}}})
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: facets: 'top_hits' is not allowed: use terms, range, date_range, histogram, \
date_histogram, missing, filter, min, max, avg, sum, stats, value_count, cardinality
    """
    if (count := sum(1 for _ in _every(facets, 1))) > _MAX_FACETS:
        raise ParameterError(f"facets: {count:,} aggregations, but at most {_MAX_FACETS:,} are allowed")
    if (buckets := _count_buckets(facets)) > _MAX_TOTAL:
        raise ParameterError(
            f"facets: up to {buckets:,} buckets with those inside others, but at most {_MAX_TOTAL:,} are allowed: ask "
            "for fewer terms, or nest less"
        )


def facet_fields(facets: Mapping[str, Clause]) -> Iterator[str]:
    """Yield the fields that facets read."""
    for facet in facets.values():
        for kind, body in facet.items():
            if kind in _NESTED:
                yield from facet_fields(body)
            elif kind == "filter":
                yield from filter_fields(body)
            else:
                yield str(body.get("field"))


def _count_buckets(facets: Mapping[str, Clause]) -> int:
    """Return how many buckets facets may have, those inside others counted in each of them."""
    total = 0
    for facet in facets.values():
        [(kind, body)] = [(key, value) for key, value in facet.items() if key not in _NESTED]
        if kind == "terms":
            own = int(body.get("size", 10))
        elif kind in ("range", "date_range"):
            own = len(body.get("ranges", ()))
        else:
            own = _HISTOGRAM_BUCKETS if kind in ("histogram", "date_histogram") else 1
        total += own * max(1, sum(_count_buckets(facet[key]) for key in _NESTED if key in facet))
    return total


def _every(facets: Any, depth: int) -> Iterator[str]:
    """Check facets and those inside them, and yield their kinds."""
    if depth > _MAX_DEPTH:
        raise ParameterError(f"facets: nested more than {_MAX_DEPTH} levels deep")
    for name, facet in _mapping(facets, "facets").items():
        kinds = [key for key in _mapping(facet, f"facet {name!r}") if key not in _NESTED]
        if len(kinds) != 1:
            raise ParameterError(
                f'facet {name!r}: expected one aggregation, such as {{"terms": {{"field": "genres"}}}}'
            )
        kind, inside = kinds[0], [facet[key] for key in _NESTED if key in facet]
        if kind not in (*BUCKETS, *METRICS):
            raise ParameterError(f"facets: {kind!r} is not allowed: use {', '.join((*BUCKETS, *METRICS))}")
        _check_body(kind, facet[kind])
        yield kind
        for aggregation in inside:
            yield from _every(aggregation, depth + 1)


def _check_body(kind: str, body: Any) -> None:
    if kind == "filter":
        check_filter(body)
        return
    settings = _mapping(body, f"facets: {kind!r}")
    if "script" in settings:
        raise ParameterError("facets: 'script' is not allowed: aggregate a field")
    if any(isinstance(settings.get(name), str) for name in ("include", "exclude")):
        raise ParameterError("facets: 'include' and 'exclude' with a pattern are not allowed: list the values")
    size = settings.get("size", 1)
    if not isinstance(size, int) or size > _MAX_BUCKETS:
        raise ParameterError(f"facets: {kind!r} returns at most {_MAX_BUCKETS:,} buckets, got size {size!r}")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ParameterError(f"{what} must be an object, got {type(value).__name__}")
    return value


LEAVES = ("term", "terms", "range", "exists", "ids", "match", "geo_distance", "geo_bounding_box")
"""Clauses that cost little and read only the documents: no scripts, patterns, joins or lookups."""
_OCCURRENCES = ("must", "must_not", "should", "filter")
_SETTINGS = ("boost", "_name", "distance", "distance_type", "validation_method", "ignore_unmapped")
_MAX_CLAUSE_DEPTH = 5
_MAX_VALUES = 1000


def check_filter(clause: Clause) -> None:
    """Raise `ParameterError` unless a clause is a filter of allowed kinds and size.

    Examples
    --------
    >>> check_filter({"bool": {"must_not": [{"term": {"sold": True}}]}})
    >>> check_filter({"script": {"script": "true"}})
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: filter: 'script' is not allowed: use bool, term, terms, range, exists, ids, match, \
geo_distance, geo_bounding_box
    """
    _check(clause, 1)
    if (count := _count(clause)) > _MAX_VALUES:
        raise ParameterError(f"filter: {count:,} values, but at most {_MAX_VALUES:,} are allowed")


def filter_fields(clause: Clause) -> Iterator[str]:
    """Yield the fields that a filter reads.

    Examples
    --------
    >>> list(filter_fields({"bool": {"must_not": [{"term": {"sold": True}}, {"exists": {"field": "price"}}]}}))
    ['sold', 'price']
    """
    for kind, body in clause.items():
        if kind == "bool":
            for clauses in body.values():
                for inner in clauses if isinstance(clauses, list) else [clauses]:
                    yield from filter_fields(inner) if isinstance(inner, dict) else ()
        elif kind == "exists":
            yield str(body.get("field"))
        elif kind != "ids":
            yield from (name for name in body if name not in _SETTINGS)


def _check(clause: Any, depth: int) -> None:
    if not isinstance(clause, Mapping) or len(clause) != 1:
        raise ParameterError('filter: expected a clause with one key, such as {"term": {"color": "red"}}')
    if depth > _MAX_CLAUSE_DEPTH:
        raise ParameterError(f"filter: nested more than {_MAX_CLAUSE_DEPTH} levels deep")
    [(kind, body)] = clause.items()
    if kind not in ("bool", *LEAVES):
        raise ParameterError(f"filter: {kind!r} is not allowed: use {', '.join(('bool', *LEAVES))}")
    if not isinstance(body, Mapping):
        raise ParameterError(f"filter: {kind!r} must be an object")
    if kind == "terms" and any(isinstance(values, Mapping) for values in body.values()):
        raise ParameterError("filter: 'terms' with a lookup is not allowed: list the values")
    if kind != "bool":
        return
    for occurrence, clauses in body.items():
        if occurrence == "minimum_should_match":
            continue
        if occurrence not in _OCCURRENCES:
            raise ParameterError(f"filter: 'bool' has {', '.join(_OCCURRENCES)}, got {occurrence!r}")
        for inner in clauses if isinstance(clauses, list) else [clauses]:
            _check(inner, depth + 1)


def _count(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1


# --- what a search must match and return, besides the text of the query -----------------------------------------------


@dataclass(frozen=True)
class SearchOptions:
    """What documents must match, and what is returned with them.

    Examples
    --------
    >>> SearchOptions({"term": {"genres": "drama"}}, facets={"years": {"stats": {"field": "year"}}}).check()
    """

    filter_clause: Clause | None = None
    """Clause of the engine's query language that documents must match. It changes no score."""
    fields: Sequence[str] = ()
    """Fields of the documents to return; ``*`` stands for any characters."""
    facets: Mapping[str, Clause] = field(default_factory=dict)
    """Aggregations of the engine's query language over all documents that match, by name."""

    def check(self) -> None:
        """Raise `ParameterError` if the filter or a facet is not allowed."""
        if self.filter_clause is not None:
            check_filter(self.filter_clause)
        check_facets(self.facets)

    def read_fields(self) -> set[str]:
        """Return the fields that the search reads for its caller: returned, filtered by or aggregated."""
        filtered = () if self.filter_clause is None else filter_fields(self.filter_clause)
        return {*self.fields, *filtered, *facet_fields(self.facets)}

    def also_matching(self, clause: Clause | None) -> SearchOptions:
        """Return these options for documents that also match a clause."""
        if clause is None or self.filter_clause is None:
            return replace(self, filter_clause=clause or self.filter_clause)
        return replace(self, filter_clause={"bool": {"filter": [clause, self.filter_clause]}})

    def response_body(self) -> dict[str, Any]:
        """Return the parts of a request that define what is returned with the hits."""
        body: dict[str, Any] = {"_source": list(self.fields) or False}
        return {**body, "aggs": dict(self.facets)} if self.facets else body


PLAIN = SearchOptions()
"""Documents by id only, not filtered."""


# x + 1 above 0, 1 / (1 - x) below: increasing and continuous. Scores are single precision, so that adding 1 loses
# values below 1e-7. Scaling x first preserves them from 1e-12 on; up to 1e26 the score stays finite.
_TO_POSITIVE = "x *= 1e12; return x >= 0 ? x + 1 : 1 / (1 - x);"


Boosts = Sequence[tuple[Clause, float]]
"""Clauses that match documents, each at most one of them, and what is added to the score of these documents."""


@dataclass(frozen=True)
class Dialect:
    """Differences between the query languages of the two engines."""

    similarities: dict[str, str] = field(hash=False)
    """Painless expressions by similarity; ``{}`` stands for the quoted field name."""
    knn_in_field: bool
    """Whether the options of a knn clause are nested under the field name."""


@dataclass(frozen=True)
class QueryBuilder:
    """Builds the clauses of one query."""

    features: FeatureSet
    dialect: Dialect
    query: str
    vector: list[float] | None

    @classmethod
    def create(cls, features: FeatureSet, dialect: Dialect, query: str, vector: ArrayLike | None) -> QueryBuilder:
        """Validate the vector and convert it to a list."""
        if vector is None:
            return cls(features, dialect, query, None)
        numbers = np.asarray(vector, dtype=np.float32)
        if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all():
            raise ParameterError(f"vector must be a list of finite numbers, got shape {numbers.shape}")
        return cls(features, dialect, query, numbers.tolist())

    @property
    def params(self) -> dict[str, Any]:
        """Parameters available to scripts."""
        params: dict[str, Any] = {"query": self.query, "terms": count_terms(self.query)}
        return params if self.vector is None else {**params, "vector": self.vector}

    def require_vector(self, used_by: str) -> list[float]:
        """Return the vector, or raise an error that names what uses it."""
        if self.vector is None:
            raise ParameterError(f"{used_by} compares vectors: pass vector=, the embedding of the query")
        return self.vector

    def candidate_query(self, filter_clause: Clause | None = None) -> Clause:
        """Return the engine's own query, which finds the candidates, restricted to documents that match a filter."""
        if filter_clause is not None:
            return {"bool": {"must": [self.candidate_query()], "filter": [filter_clause]}}
        candidates = self.features.candidates
        if candidates is None:
            raise ParameterError("the feature file has no [search] table to find candidates with: add one")
        clause = candidates.text.clause(self.query)
        if candidates.vector is None:
            return clause
        vector = self.require_vector("[search]")
        boost = {"boost": candidates.vector_boost}
        if self.dialect.knn_in_field:
            knn: Clause = {candidates.vector: {"vector": vector, "k": candidates.nearest, **boost}}
        else:
            knn = {
                "field": candidates.vector,
                "query_vector": vector,
                "num_candidates": candidates.nearest,
                **boost,
            }
        return {"bool": {"should": [clause, {"knn": knn}]}}

    def feature_clauses(self) -> dict[str, Clause]:
        """Return the clauses whose scores are features, by feature name."""
        clauses = {}
        for feature in self.features.features:
            if isinstance(feature, TextFeature):
                clauses[feature.name] = feature.clause(self.query)
            elif isinstance(feature, VectorSimilarity):
                self.require_vector(f"feature {feature.name!r}")
                script = f"{self._similarity(feature)} + {score_offset(feature)}"
                clauses[feature.name] = self._script_score({"exists": {"field": feature.field}}, script)
            elif isinstance(feature, Script):
                clauses[feature.name] = self._script_score({"match_all": {}}, feature.source)
        return clauses

    def docvalue_fields(self) -> list[str]:
        """Return the fields whose values are features."""
        return sorted({feature.field for feature in self.features.features if isinstance(feature, FieldValue)})

    def weighted_query(
        self, weights: ArrayLike, candidates: Clause, *, positive: bool = False, boosts: Boosts = ()
    ) -> Clause:
        """Return a query that orders the documents matching `candidates` by the weighted sum of their features.

        Scores are not negative, and above 0 with `positive`. A boost is added to the sum of documents that match it.
        """
        numbers = np.asarray(weights, dtype=np.float64)
        features = self.features.features
        if numbers.shape != (len(features),) or not np.isfinite(numbers).all():
            raise ParameterError(
                f"weights must be {len(features)} finite numbers, one per feature, got shape {numbers.shape}"
            )
        pairs = [(feature, float(weight)) for feature, weight in zip(features, numbers, strict=True)]
        text = [(feature, weight) for feature, weight in pairs if isinstance(feature, TextFeature)]
        should = [_boosted(feature.clause(self.query), weight) for feature, weight in text if weight > 0]
        negative = [(feature, -weight) for feature, weight in text if weight < 0]
        bound = sum(weight * feature.max_score(self.query) for feature, weight in negative)
        if negative:
            boosted = [_boosted(feature.clause(self.query), weight) for feature, weight in negative]
            should.append(self._subtracted_from(bound, boosted))
        lowest = min([0.0, *(boost for _, boost in boosts)])
        should += _boosting(boosts, lowest)
        bound -= lowest
        summed: Clause = {"bool": {"filter": [candidates], "should": should}}
        values = [(feature, weight) for feature, weight in pairs if isinstance(feature, ValueFeature)]
        if not positive and not any(weight for _, weight in values):
            return summed
        terms = "".join(f" + params.weights[{i}] * ({self._expression(f)})" for i, (f, _) in enumerate(values))
        script = f"double x = _score - params.shift{terms}; {_TO_POSITIVE}"
        return self._script_score(summed, script, shift=bound, weights=[weight for _, weight in values])

    def weighted_search(
        self,
        weights: ArrayLike,
        documents: Clause | None,
        *,
        size: int,
        window: int | None,
        options: SearchOptions | None,
        boosts: Boosts = (),
    ) -> dict[str, Any]:
        """Return the body of `kinrank.engines.Engine.apply_request`; `documents` matches those to rank."""
        wanted = options or PLAIN
        response = {"size": size, **wanted.response_body()}
        if documents is not None and options is not None:
            # Everything that matches is counted. Scores are positive, so that documents without one come last.
            ranked = self.weighted_query(weights, documents, positive=True, boosts=boosts)
            matching = self.candidate_query(options.filter_clause)
            if boosts:  # the query may not find all of these documents
                matching = {"bool": {"should": [matching, options.also_matching(documents).filter_clause]}}
            return {"query": {"bool": {"filter": [matching], "should": [ranked]}}, **response}
        candidates = documents or self.candidate_query(wanted.filter_clause)
        if window is None:
            return {"query": self.weighted_query(weights, candidates, boosts=boosts), **response}
        rescore_query = {
            "rescore_query": self.weighted_query(weights, {"match_all": {}}, boosts=boosts),
            "query_weight": 0.0,
            "rescore_query_weight": 1.0,
        }
        rescore = {"window_size": window, "query": rescore_query}
        return {"query": candidates, "rescore": rescore, **response, "size": min(size, window)}

    def _subtracted_from(self, bound: float, clauses: list[Clause]) -> Clause:
        query = {"bool": {"filter": [{"match_all": {}}], "should": clauses}}
        return self._script_score(query, "Math.max(0, params.bound - _score)", bound=bound)

    def _expression(self, feature: ValueFeature) -> str:
        """Return a Painless expression of the feature, 0 if it is missing."""
        if isinstance(feature, FieldValue):
            return feature.expression
        if isinstance(feature, Script):
            return feature.source
        self.require_vector(f"feature {feature.name!r}")
        return f"doc[{painless_string(feature.field)}].size() == 0 ? 0 : {self._similarity(feature)}"

    def _similarity(self, feature: VectorSimilarity) -> str:
        return self.dialect.similarities[feature.similarity].format(painless_string(feature.field))

    def _script_score(self, query: Clause, source: str, **params: Any) -> Clause:
        used = {name: value for name, value in self.params.items() if f"params.{name}" in source}
        return {"script_score": {"query": query, "script": {"source": source, "params": {**used, **params}}}}


def ids_filter(doc_ids: Sequence[str], *, with_index: bool = False) -> Clause:
    """Return a filter that matches only these documents, given by id or by ``index/id``.

    Examples
    --------
    >>> ids_filter(["7", "8"])
    {'ids': {'values': ['7', '8']}}
    """
    if not with_index:
        return {"ids": {"values": list(doc_ids)}}
    by_index: dict[str, list[str]] = {}
    for doc_id in doc_ids:
        index, _, rest = doc_id.partition("/")
        by_index.setdefault(index, []).append(rest)
    clauses = [{"bool": {"filter": [{"term": {"_index": index}}, ids_filter(ids)]}} for index, ids in by_index.items()]
    return {"bool": {"should": clauses, "minimum_should_match": 1}}


def score_offset(feature: VectorSimilarity) -> float:
    """Return what is added to a similarity to avoid negative scores. It is subtracted again from logged features."""
    return 1.0 if feature.similarity == "cosine" else 0.0


def _boosted(clause: Clause, weight: float) -> Clause:
    return {"bool": {"must": [clause], "boost": weight}}


def _boosting(boosts: Boosts, lowest: float) -> list[Clause]:
    """Return clauses that add the boosts minus the lowest, which is not positive, to all documents."""
    adding = [{"constant_score": {"filter": clause, "boost": boost - lowest}} for clause, boost in boosts]
    if lowest < 0:
        others = {"bool": {"must_not": [clause for clause, _ in boosts]}}
        adding.append({"constant_score": {"filter": others, "boost": -lowest}})
    return adding


class HitValues(NamedTuple):
    """Scores by feature name, field values by field name, and the requested part of the document, for one hit."""

    scores: dict[str, float]
    fields: dict[str, float]
    source: Mapping[str, Any]

    @classmethod
    def from_hit(cls, hit: Mapping[str, Any], scores: dict[str, float] | None = None) -> HitValues:
        """Read a hit with ``docvalue_fields``. A field with several values counts by its first, as in scripts."""
        fields = {field: float(values[0]) for field, values in hit.get("fields", {}).items()}
        return cls(scores or {}, fields, hit.get("_source", {}))


def feature_matrix(documents: Sequence[HitValues], builder: QueryBuilder) -> Float32:
    """Return the features of documents, one row each."""
    # Column by column: there are many more documents than features.
    columns = np.empty((len(builder.features.features), len(documents)), dtype=np.float32)
    for column, feature in zip(columns, builder.features.features, strict=True):
        if isinstance(feature, QueryLength):
            column[:] = feature.value(builder.query)
        elif isinstance(feature, FieldValue):
            column[:] = feature.values([document.fields.get(feature.field, np.nan) for document in documents])
        else:
            scores = np.array([document.scores.get(feature.name, np.nan) for document in documents], dtype=np.float64)
            column[:] = scores - score_offset(feature) if isinstance(feature, VectorSimilarity) else scores
        if feature.missing == "zero":
            column[np.isnan(column)] = 0.0
    return np.ascontiguousarray(columns.T)


# --- one search of Elasticsearch that also returns documents by id, whether or not it finds them ---------------------
#
# The added documents get scores above all others but pinned ones, so that they are always among the hits. The score of
# one that the search finds is that of a named clause.


_ADDED = 2.0**100
_MATCHING = "kinrank.matching"


def adding_search(builder: QueryBuilder, documents: Clause, options: SearchOptions) -> tuple[dict[str, Any], Clause]:
    """Return the body of a search that adds documents, and the clause whose named scores `without_added` reads."""
    candidates = builder.candidate_query(options.filter_clause)
    wanted = options.also_matching(documents).filter_clause
    added = {"constant_score": {"filter": wanted, "boost": _ADDED}}
    body = {"query": {"bool": {"should": [candidates, added]}}, **options.response_body()}
    if options.facets:  # of the candidates alone
        body["aggs"] = {_MATCHING: {"filter": candidates, "aggs": body["aggs"]}}
    return body, {"bool": {"must": [builder.candidate_query()], "filter": [wanted], "_name": _MATCHING}}


def without_added(
    response: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]], doc_ids: Sequence[str], size: int
) -> tuple[dict[str, Any], int]:
    """Return the response of the search alone, followed by the added documents, and the number of its hits.

    Of documents with the same score, added ones come last. Those that the search does not find have the score None.

    The size of the response was `size` and the number of added documents; `documents` are its hits by document.
    """
    requested = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id in documents]
    scores = {doc_id: hit["_score"] for doc_id, hit in documents.items() if doc_id not in set(requested)}
    scores |= {doc_id: documents[doc_id].get("matched_queries", {}).get(_MATCHING) for doc_id in requested}
    not_found = {doc_id for doc_id in requested if scores[doc_id] is None}
    found = sorted((each for each in scores if each not in not_found), key=scores.__getitem__, reverse=True)[:size]
    added = [doc_id for doc_id in requested if doc_id not in set(found)]
    hits = [{**documents[doc_id], "_score": scores[doc_id]} for doc_id in [*found, *added]]
    total = response["hits"].get("total")
    if total is not None and total["relation"] == "eq":
        total = {**total, "value": total["value"] - len(not_found)}
    facets = dict(response.get("aggregations", {}).get(_MATCHING, {}))
    facets.pop("doc_count", None)
    return {"hits": {"hits": hits, "total": total}, "aggregations": facets}, len(found)
