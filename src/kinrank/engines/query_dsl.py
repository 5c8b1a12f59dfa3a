"""Requests in the query language that Elasticsearch and OpenSearch share, and what their hits say. Nothing is sent.

Per-query weights become a query whose scores order documents as ``features @ weights`` does:

- A clause with a positive weight w gets the boost w.
- Clauses with negative weights are summed with boosts |w| and subtracted from an upper bound of that sum, the same for
  every document, since scores must not be negative.
- Values of the document are added by one script. Its text is the same for every query (the weights are parameters),
  so the engine compiles it once. It ends with an order-preserving map to positive numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from kinrank.engines.search_options import PLAIN, SearchOptions
from kinrank.errors import ParameterError

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


# --- scores and field values of hits, as rows of features -------------------------------------------------------------


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
# The added documents get scores above all others, so that they are always among the hits: 2^20 if the search does not
# find them, else 2^60 times their score in the search. Both are powers of two. So the sum of the three clauses is
# rounded to exactly this multiple, and dividing by it gives the score with all its digits.


_FOUND = 2.0**60
_NOT_FOUND = 2.0**20
_MATCHING = "matching"


def adding_search(builder: QueryBuilder, documents: Clause, options: SearchOptions) -> dict[str, Any]:
    """Return the body of a search that adds documents.

    Parameters
    ----------
    builder
        Builds the clauses of the query.
    documents
        Matches the documents to add.
    options
        What they and the candidates must match, and what is returned with them.
    """
    candidates = builder.candidate_query(options.filter_clause)
    wanted = options.also_matching(documents).filter_clause
    found = {"bool": {"must": [builder.candidate_query()], "filter": [wanted], "boost": _FOUND}}
    added = {"constant_score": {"filter": wanted, "boost": _NOT_FOUND}}
    body = {"query": {"bool": {"should": [candidates, found, added]}}, **options.response_body()}
    if options.facets:  # of the candidates alone
        body["aggs"] = {_MATCHING: {"filter": candidates, "aggs": body["aggs"]}}
    return body


def without_added(
    response: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]], doc_ids: Sequence[str], size: int
) -> tuple[dict[str, Any], int]:
    """Return the response of the search alone, followed by the added documents, and the number of its hits.

    Of documents with the same score, added ones come last. Those that the search does not find have the score None.

    Parameters
    ----------
    response
        The response to `adding_search`, whose size was `size` and the number of added documents.
    documents
        Its hits by document.
    doc_ids
        The added documents.
    size
        The number of hits of the search.
    """
    requested = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id in documents]
    scores = {doc_id: _single(hit["_score"]) for doc_id, hit in documents.items() if doc_id not in set(requested)}
    scores |= {doc_id: _single(documents[doc_id]["_score"]) / _FOUND for doc_id in requested}
    not_found = {doc_id for doc_id in requested if scores[doc_id] <= _NOT_FOUND / _FOUND}
    found = sorted((each for each in scores if each not in not_found), key=scores.__getitem__, reverse=True)[:size]
    added = [doc_id for doc_id in requested if doc_id not in set(found)]
    hits = [
        {**documents[doc_id], "_score": None if doc_id in not_found else scores[doc_id]} for doc_id in [*found, *added]
    ]
    total = response["hits"].get("total")
    if total is not None and total["relation"] == "eq":
        total = {**total, "value": total["value"] - len(not_found)}
    facets = dict(response.get("aggregations", {}).get(_MATCHING, {}))
    facets.pop("doc_count", None)
    return {"hits": {"hits": hits, "total": total}, "aggregations": facets}, len(found)


def _single(score: float) -> float:
    """Return a score in single precision, as the engine computed it: its decimals in a response are rounded."""
    return float(np.float32(score))
