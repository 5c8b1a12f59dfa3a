"""Requests in the query language that Elasticsearch and OpenSearch share: pure, text and numbers in, JSON out.

Per-query weights become a request so that its scores order documents as ``features @ weights`` does:

- a clause of positive weight w is boosted by w;
- clauses of negative weight are summed with boosts |w| and subtracted from a bound of that sum, the same for every
  document, since scores must not be negative;
- values of the document are added by one script, whose text is the same for every query (weights are its parameters),
  so that it is compiled once. It ends in a map of all numbers to the positive ones that keeps their order.
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
from kinrank.errors import ParameterError

# x + 1 above 0, 1 / (1 - x) below: rising and continuous. Scores are single precision, in which the 1 swallows what is
# smaller than 1e-7, so x is enlarged first: its digits are kept from 1e-12 on, and up to 1e26 it is no infinite score.
_POSITIVE = "x *= 1e12; return x >= 0 ? x + 1 : 1 / (1 - x);"


@dataclass(frozen=True)
class Dialect:
    """Where the two engines differ.

    Attributes
    ----------
    similarities : dict of str to str
        Painless expressions; ``{}`` is the name of the field in quotes.
    knn_in_field : bool
        Whether a knn clause has its settings under the name of the field.
    """

    similarities: dict[str, str] = field(hash=False)
    knn_in_field: bool


@dataclass(frozen=True)
class QueryBuilder:
    """What is asked: a query, its vector, and the features there are."""

    features: FeatureSet
    dialect: Dialect
    query: str
    vector: list[float] | None

    @classmethod
    def of(cls, features: FeatureSet, dialect: Dialect, query: str, vector: ArrayLike | None) -> QueryBuilder:
        """Check the vector, and bring it into JSON's form."""
        if vector is None:
            return cls(features, dialect, query, None)
        numbers = np.asarray(vector, dtype=np.float32)
        if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all():
            raise ParameterError(f"vector must be a list of finite numbers, got shape {numbers.shape}")
        return cls(features, dialect, query, numbers.tolist())

    @property
    def params(self) -> dict[str, Any]:
        """What scripts may use."""
        words: dict[str, Any] = {"query": self.query, "terms": count_terms(self.query)}
        return words if self.vector is None else {**words, "vector": self.vector}

    def needed_vector(self, who: str) -> list[float]:
        """The vector, or an error that says who needs it."""
        if self.vector is None:
            raise ParameterError(f"{who} compares vectors: pass vector=, the embedding of the query")
        return self.vector

    # --- candidates -----------------------------------------------------------------------------------------------

    def candidates(self) -> Clause:
        """The engine's own query."""
        own = self.features.candidates
        if own is None:
            raise ParameterError("the feature file has no table [search], so there are no candidates: add it")
        clause = own.text.clause(self.query)
        if own.vector is None:
            return clause
        nearest = {"boost": own.vector_boost}
        vector = self.needed_vector("[search]")
        if self.dialect.knn_in_field:
            knn: Clause = {own.vector: {"vector": vector, "k": own.nearest, **nearest}}
        else:
            knn = {"field": own.vector, "query_vector": vector, "num_candidates": own.nearest, **nearest}
        return {"bool": {"should": [clause, {"knn": knn}]}}

    # --- features ---------------------------------------------------------------------------------------------------

    def scored(self) -> dict[str, Clause]:
        """Clauses whose scores are features, by name."""
        clauses = {}
        for feature in self.features.features:
            if isinstance(feature, TextFeature):
                clauses[feature.name] = feature.clause(self.query)
            elif isinstance(feature, VectorSimilarity):
                self.needed_vector(f"feature {feature.name!r}")
                # A cosine may be negative, a score may not; `unscored` takes the 1 away again.
                script = f"{self._similarity(feature)} + {score_shift(feature)}"
                clauses[feature.name] = self._script_score({"exists": {"field": feature.field}}, script)
            elif isinstance(feature, Script):
                clauses[feature.name] = self._script_score({"match_all": {}}, feature.source)
        return clauses

    def stored(self) -> list[str]:
        """Fields whose values are features."""
        return sorted({feature.field for feature in self.features.features if isinstance(feature, FieldValue)})

    # --- weights ------------------------------------------------------------------------------------------------------

    def weighted(self, weights: ArrayLike, among: Clause) -> Clause:
        """A query whose scores order the documents that match `among` by the weighted sum of their features."""
        numbers = np.asarray(weights, dtype=np.float64)
        features = self.features.features
        if numbers.shape != (len(features),) or not np.isfinite(numbers).all():
            raise ParameterError(
                f"weights must be {len(features)} finite numbers, one per feature, got shape {numbers.shape}"
            )
        pairs = [(feature, float(weight)) for feature, weight in zip(features, numbers, strict=True)]
        text = [(feature, weight) for feature, weight in pairs if isinstance(feature, TextFeature)]
        should = [_boosted(feature.clause(self.query), weight) for feature, weight in text if weight > 0]
        against = [(feature, -weight) for feature, weight in text if weight < 0]
        shift = sum(weight * feature.largest(self.query) for feature, weight in against)
        if against:
            should.append(self._subtracted([_boosted(f.clause(self.query), weight) for f, weight in against], shift))
        summed: Clause = {"bool": {"filter": [among], "should": should}}
        values = [(feature, weight) for feature, weight in pairs if isinstance(feature, ValueFeature)]
        if not any(weight for _, weight in values):
            return summed
        terms = "".join(f" + params.weights[{i}] * ({self._value(f)})" for i, (f, _) in enumerate(values))
        script = f"double x = _score - params.shift{terms}; {_POSITIVE}"
        return self._script_score(summed, script, shift=shift, weights=[weight for _, weight in values])

    def _subtracted(self, clauses: list[Clause], bound: float) -> Clause:
        every = {"bool": {"filter": [{"match_all": {}}], "should": clauses}}
        return self._script_score(every, "Math.max(0, params.bound - _score)", bound=bound)

    def _value(self, feature: ValueFeature) -> str:
        """A Painless expression of the feature, 0 where it is missing."""
        if isinstance(feature, Script):
            return feature.source
        if isinstance(feature, VectorSimilarity):
            self.needed_vector(f"feature {feature.name!r}")
            return f"doc[{painless_string(feature.field)}].size() == 0 ? 0 : {self._similarity(feature)}"
        if isinstance(feature, FieldValue):
            return feature.expression
        raise ParameterError(f"{type(feature).__name__} has no expression")

    def _similarity(self, feature: VectorSimilarity) -> str:
        return self.dialect.similarities[feature.similarity].format(painless_string(feature.field))

    def _script_score(self, query: Clause, source: str, **params: Any) -> Clause:
        used = {name: value for name, value in self.params.items() if f"params.{name}" in source}
        return {"script_score": {"query": query, "script": {"source": source, "params": {**used, **params}}}}


def only(doc_ids: Sequence[str]) -> Clause:
    """A filter: only these documents."""
    return {"ids": {"values": list(doc_ids)}}


def score_shift(feature: VectorSimilarity) -> float:
    """What is added to a similarity so that it is no negative score."""
    return 1.0 if feature.similarity == "cosine" else 0.0


def _boosted(clause: Clause, weight: float) -> Clause:
    return {"bool": {"must": [clause], "boost": weight}}
