"""Build requests in the query language that Elasticsearch and OpenSearch share. Nothing here sends a request.

Per-query weights become a query whose scores order documents as ``features @ weights`` does:

- A clause with a positive weight w gets the boost w.
- Clauses with negative weights are summed with boosts |w| and subtracted from an upper bound of that sum, the same for
  every document, since scores must not be negative.
- Values of the document are added by one script. Its text is the same for every query (the weights are parameters),
  so the engine compiles it once. It ends with an order-preserving map to positive numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kinrank.engines.feature_set import FeatureSet
from kinrank.engines.features import (
    Clause,
    FieldValue,
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
