"""Kinds of features that an engine can compute, and the clause or script of each.

A text feature is the score of a query clause. A value feature is the result of a Painless expression over the
document. A query feature is the same for all documents of a query.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.engines.placeholders import fill_placeholders
from kinrank.errors import ParameterError

Missing = Literal["zero", "nan"]
Clause = dict[str, Any]

# BM25 scores a term at most boost * 2.2 * idf, and idf < 28 for as many documents as 500 shards can hold.
_MAX_TERM_SCORE = 64.0
# Most analyzers produce a term for each ideograph and for each run of letters and digits.
_TERM = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W_]+")


def count_terms(text: str) -> int:
    """Estimate how many terms an analyzer produces from a text.

    Examples
    --------
    >>> count_terms("spider-man 2 (2004)")
    4
    """
    return len(_TERM.findall(text))


@dataclass(frozen=True)
class Feature(ABC):
    """A named feature."""

    name: str
    """Name of the feature's column."""
    missing: Missing = "zero"
    """Value if the clause does not match or the field is empty: 0 or NaN."""


@dataclass(frozen=True)
class TextFeature(Feature):
    """The score of a query clause."""

    max: float | None = None
    """Upper bound of the score; see `max_score`."""

    @abstractmethod
    def clause(self, query: str) -> Clause:
        """Return the clause in the query language of Elasticsearch and OpenSearch."""

    def max_score(self, query: str) -> float:
        """Return an upper bound of the score: `max` if set, otherwise the bound of BM25."""
        return self.max if self.max is not None else _MAX_TERM_SCORE * max(1, count_terms(query)) * self._boost()

    def _boost(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Match(TextFeature):
    """``match``: the terms of the query in one field."""

    field: str = ""
    operator: Literal["or", "and"] = "or"
    minimum_should_match: str | int | None = None
    fuzziness: str | int | None = None
    analyzer: str | None = None

    def clause(self, query: str) -> Clause:
        """Return a ``match`` clause."""
        options = _without_none(
            minimum_should_match=self.minimum_should_match, fuzziness=self.fuzziness, analyzer=self.analyzer
        )
        return {"match": {self.field: {"query": query, "operator": self.operator, **options}}}


@dataclass(frozen=True)
class MultiMatch(TextFeature):
    """``multi_match``: the terms of the query in several fields, each with its boost (``"title^3"``).

    The type cross_fields is not supported: it combines the term statistics of a single shard, so that scores depend on
    the shard of a document, even with ``dfs_query_then_fetch``.
    """

    fields: Sequence[str] = ()
    type: Literal["best_fields", "most_fields", "phrase"] = "best_fields"
    operator: Literal["or", "and"] = "or"
    tie_breaker: float | None = None
    minimum_should_match: str | int | None = None
    analyzer: str | None = None

    def clause(self, query: str) -> Clause:
        """Return a ``multi_match`` clause."""
        options = _without_none(
            tie_breaker=self.tie_breaker, minimum_should_match=self.minimum_should_match, analyzer=self.analyzer
        )
        body = {"query": query, "fields": list(self.fields), "type": self.type, "operator": self.operator}
        return {"multi_match": {**body, **options}}

    def _boost(self) -> float:
        return sum(float(field.partition("^")[2] or 1) for field in self.fields)


@dataclass(frozen=True)
class Phrase(TextFeature):
    """``match_phrase``: the query as a phrase in one field."""

    field: str = ""
    slop: int = 0
    analyzer: str | None = None

    def clause(self, query: str) -> Clause:
        """Return a ``match_phrase`` clause."""
        options = _without_none(analyzer=self.analyzer)
        return {"match_phrase": {self.field: {"query": query, "slop": self.slop, **options}}}


@dataclass(frozen=True)
class RawClause(TextFeature):
    """Any clause, sent as it is, with ``{{text}}`` replaced by the query."""

    body: Mapping[str, Any] | None = None

    def clause(self, query: str) -> Clause:
        """Return the clause with the query filled in."""
        filled: Clause = fill_placeholders(self.body, {"text": query})
        return filled

    def max_score(self, query: str) -> float:
        """Return `max`, which must be set: the score of an arbitrary clause has no known bound."""
        if self.max is None:
            raise ParameterError(
                f"feature {self.name!r} has a negative weight, but its clause has no known maximum score: "
                "set max = ... in its definition, or learn non-negative weights"
            )
        return super().max_score(query)


@dataclass(frozen=True)
class FieldValue(Feature):
    """A numeric field of the document: votes, price, age. Missing if the transformed value is not finite."""

    field: str = ""
    transform: Literal["none", "log1p", "sqrt"] = "none"

    @property
    def expression(self) -> str:
        """Painless expression of the value, 0 if it is missing."""
        doc_value = f"doc[{painless_string(self.field)}]"
        value, missing = f"(double) {doc_value}.value", f"{doc_value}.size() == 0"
        if self.transform != "none":
            value = f"Math.{self.transform}({value})"
            missing += f" || !Double.isFinite({value})"
        return f"{missing} ? 0 : {value}"

    def values(self, field_values: Sequence[float]) -> NDArray[np.float64]:
        """Return the transformed values of a field, NaN if missing."""
        values = np.array(field_values, dtype=np.float64)
        if self.transform != "none":
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.log1p(values) if self.transform == "log1p" else np.sqrt(values)
            values[~np.isfinite(values)] = np.nan
        return values


@dataclass(frozen=True)
class VectorSimilarity(Feature):
    """Cosine similarity or Euclidean distance (``l2``) between the vectors of the document and of the query."""

    field: str = ""
    similarity: Literal["cosine", "l2"] = "cosine"


@dataclass(frozen=True)
class Script(Feature):
    """A Painless expression over the document. It must not be negative, since engines reject negative scores.

    The expression can use ``params.query`` (text), ``params.terms`` (number of terms) and ``params.vector``.
    """

    source: str = ""


ValueFeature = FieldValue | VectorSimilarity | Script
"""A number that the engine computes from the document."""


@dataclass(frozen=True)
class QueryLength(Feature):
    """Length of the query, the same for all its documents."""

    unit: Literal["words", "characters"] = "words"

    def value(self, query: str) -> float:
        """Return the length of a query."""
        return float(len(query.split()) if self.unit == "words" else len(query))


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def painless_string(text: str) -> str:
    r"""Return a text as a Painless string literal.

    Examples
    --------
    >>> print(painless_string("director's_cut"))
    'director\'s_cut'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
