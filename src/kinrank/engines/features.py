"""Kinds of features that an engine can be asked for, and what each becomes in a request.

A feature of text is a query clause: its value is the clause's score. A feature of values is a Painless expression over
the document: its value is what the expression gives. A feature of the query is the same for all its documents.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.errors import ParameterError

Missing = Literal["zero", "nan"]
Clause = dict[str, Any]

# BM25 gives a term at most boost * 2.2 * idf, and idf < 28 for as many documents as 500 shards can hold.
_TERM_SCORE = 64.0
# What analyzers commonly make a term of: an ideograph, or a run of letters and digits.
_TERM = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W_]+")


def count_terms(text: str) -> int:
    """How many terms an analyzer makes of a text, as a rule.

    Examples
    --------
    >>> count_terms("spider-man 2 (2004)")
    4
    """
    return len(_TERM.findall(text))


@dataclass(frozen=True)
class Feature(ABC):
    """A feature by name.

    Attributes
    ----------
    name : str
        Its column.
    missing : {"zero", "nan"}
        What its value is where a clause does not match or a field is empty: 0, or missing.
    """

    name: str
    missing: Missing = "zero"


@dataclass(frozen=True)
class TextFeature(Feature):
    """The score of a query clause.

    Attributes
    ----------
    max : float, optional
        A score that no document exceeds; see `largest`.
    """

    max: float | None = None

    @abstractmethod
    def clause(self, query: str) -> Clause:
        """The clause in the query language of Elasticsearch and OpenSearch."""

    def largest(self, query: str) -> float:
        """A bound of its score: what is declared, else what BM25 cannot exceed."""
        return self.max if self.max is not None else _TERM_SCORE * max(1, count_terms(query)) * self._boost()

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
        """As `TextFeature.clause`."""
        settings = _given(self, "minimum_should_match", "fuzziness", "analyzer")
        return {"match": {self.field: {"query": query, "operator": self.operator, **settings}}}


@dataclass(frozen=True)
class MultiMatch(TextFeature):
    """``multi_match``: the terms of the query in several fields, each with its boost (``"title^3"``).

    Not of type cross_fields: it mixes the term statistics of one shard, so that scores depend on a document's shard,
    also under ``dfs_query_then_fetch``.
    """

    fields: Sequence[str] = ()
    type: Literal["best_fields", "most_fields", "phrase"] = "best_fields"
    operator: Literal["or", "and"] = "or"
    tie_breaker: float | None = None
    minimum_should_match: str | int | None = None
    analyzer: str | None = None

    def clause(self, query: str) -> Clause:
        """As `TextFeature.clause`."""
        settings = _given(self, "tie_breaker", "minimum_should_match", "analyzer")
        words = {"query": query, "fields": list(self.fields), "type": self.type, "operator": self.operator}
        return {"multi_match": {**words, **settings}}

    def _boost(self) -> float:
        return sum(float(field.partition("^")[2] or 1) for field in self.fields)


@dataclass(frozen=True)
class Phrase(TextFeature):
    """``match_phrase``: the terms of the query beside each other in one field."""

    field: str = ""
    slop: int = 0
    analyzer: str | None = None

    def clause(self, query: str) -> Clause:
        """As `TextFeature.clause`."""
        return {"match_phrase": {self.field: {"query": query, "slop": self.slop, **_given(self, "analyzer")}}}


@dataclass(frozen=True)
class RawClause(TextFeature):
    """Any clause, word for word; ``{query}`` in a text of it is the query."""

    body: Mapping[str, Any] | None = None

    def clause(self, query: str) -> Clause:
        """As `TextFeature.clause`."""
        filled: Clause = _fill(self.body, query)
        return filled

    def largest(self, query: str) -> float:
        """What is declared: nothing is known of the clause."""
        if self.max is None:
            raise ParameterError(
                f"feature {self.name!r} has a negative weight, and nobody knows how high its clause can score: "
                "declare max = ... in its definition, or learn non-negative weights"
            )
        return super().largest(query)


@dataclass(frozen=True)
class ValueFeature(Feature):
    """A number that the engine computes from the document, by a Painless expression.

    The expression may use ``params.query`` (text), ``params.terms`` (how many) and ``params.vector``.
    """


@dataclass(frozen=True)
class FieldValue(ValueFeature):
    """A number of the document: votes, price, age. Missing also where the transform of it is no finite number."""

    field: str = ""
    transform: Literal["none", "log1p", "sqrt"] = "none"

    @property
    def expression(self) -> str:
        """Its value, 0 where it is missing."""
        stored = f"doc[{painless_string(self.field)}]"
        value, missing = f"(double) {stored}.value", f"{stored}.size() == 0"
        if self.transform != "none":
            value = f"Math.{self.transform}({value})"
            missing += f" || !Double.isFinite({value})"
        return f"{missing} ? 0 : {value}"

    def values(self, stored: Sequence[float]) -> NDArray[np.float64]:
        """Its values for what the fields of documents hold; NaN where it is missing."""
        values = np.array(stored, dtype=np.float64)
        if self.transform != "none":
            with np.errstate(divide="ignore", invalid="ignore"):
                values = getattr(np, self.transform)(values)
            values[~np.isfinite(values)] = np.nan
        return values


@dataclass(frozen=True)
class VectorSimilarity(ValueFeature):
    """The vector of the document compared with the vector of the query: cosine, or Euclidean distance (``l2``)."""

    field: str = ""
    similarity: Literal["cosine", "l2"] = "cosine"


@dataclass(frozen=True)
class Script(ValueFeature):
    """A Painless expression of one's own. It must not be negative: engines refuse negative scores."""

    source: str = ""


@dataclass(frozen=True)
class QueryLength(Feature):
    """How long the query is; the same for all of its documents."""

    unit: Literal["words", "characters"] = "words"

    def value(self, query: str) -> float:
        """The length of a query."""
        return float(len(query.split()) if self.unit == "words" else len(query))


def _given(feature: Feature, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(feature, name)) is not None}


def _fill(body: Any, query: str) -> Any:
    if isinstance(body, str):
        return body.replace("{query}", query)
    if isinstance(body, Mapping):
        return {key: _fill(value, query) for key, value in body.items()}
    return [_fill(value, query) for value in body] if isinstance(body, list) else body


def painless_string(text: str) -> str:
    r"""A text as Painless writes it.

    Examples
    --------
    >>> print(painless_string("director's_cut"))
    'director\'s_cut'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
