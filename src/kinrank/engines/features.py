"""Features that an engine computes: their kinds, the file that defines them, and the fields that they use."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
import tomllib
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from kinrank.data.files import PathLike
from kinrank.data.tables import is_reserved
from kinrank.errors import DataError, EngineRefusedError, FileFormatError, ParameterError

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def fill_placeholders(template: Any, values: Mapping[str, Any]) -> Any:
    """Return the template with every ``{{name}}`` replaced by the value of that name.

    A string that is only a placeholder becomes the value itself, for example a vector. Within a longer string the
    value is inserted as text. Keys are not changed.

    Examples
    --------
    >>> clauses = {"title": {"match": {"title": "{{text}}"}}, "dense": {"query": "{{vector}}", "limit": 100}}
    >>> fill_placeholders(clauses, {"text": "heat", "vector": [0.5, 0.5]})
    {'title': {'match': {'title': 'heat'}}, 'dense': {'query': [0.5, 0.5], 'limit': 100}}
    """
    if isinstance(template, Mapping):
        return {key: fill_placeholders(part, values) for key, part in template.items()}
    if isinstance(template, list | tuple):
        return [fill_placeholders(part, values) for part in template]
    if not isinstance(template, str):
        return template
    if match := _PLACEHOLDER.fullmatch(template):
        return _value(match[1], values)
    return _PLACEHOLDER.sub(lambda match: str(_value(match[1], values)), template)


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        names = ", ".join(f"{{{{{value}}}}}" for value in values) or "none"
        raise DataError(f"unknown placeholder {{{{{name}}}}}; available: {names}")
    value = values[name]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


# --- kinds of features that an engine can compute, and the clause or script of each -----------------------------------
#
# A text feature is the score of a query clause. A value feature is the result of a Painless expression over the
# document. A query feature is the same for all documents of a query.


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


# --- feature files: which features an engine computes, and where candidates come from ---------------------------------
#
# ::
#
#     [search]                                        # the engine's own query, which finds the candidates
#     multi_match = ["title^3", "overview"]
#
#     [features]
#     title = { match = "title" }
#     title_and = { match = "title", operator = "and", missing = "nan" }
#     exact = { phrase = "title" }
#     all = { multi_match = ["title^3", "overview"], type = "most_fields" }
#     near = { vector = "embedding" }
#     votes = { field = "votes", transform = "log1p" }
#     fresh = { script = "Math.max(0, doc['year'].value - 1900)" }
#     words = { query_length = "words" }
#     genre = { clause = { term = { genre = "{{text}}" } }, max = 20.0 }


# The key that selects the kind, its class, and the attribute that the value of the key sets.
KINDS: dict[str, tuple[type[Feature], str]] = {
    "match": (Match, "field"),
    "multi_match": (MultiMatch, "fields"),
    "phrase": (Phrase, "field"),
    "clause": (RawClause, "body"),
    "vector": (VectorSimilarity, "field"),
    "field": (FieldValue, "field"),
    "script": (Script, "source"),
    "query_length": (QueryLength, "unit"),
}


@dataclass(frozen=True)
class _CandidateQuery:
    """The engine's own query, which finds the candidates."""

    text: TextFeature
    """Clause that a document must match. Its score is the engine's own."""
    vector: str | None = None
    """A vector field. The nearest documents become candidates too, and their similarity is added to the score."""
    nearest: int = 100
    """Number of nearest documents."""
    vector_boost: float = 1.0
    """Factor of the similarity."""


@dataclass(frozen=True)
class FeatureSet:
    """The features and the candidate query of a feature file.

    Examples
    --------
    >>> features = FeatureSet.parse('''
    ... [search]
    ... multi_match = ["title^3", "overview"]
    ... [features]
    ... title = { match = "title" }
    ... votes = { field = "votes", transform = "log1p", missing = "nan" }
    ... ''')
    >>> features.names
    ('title', 'votes')
    >>> features.features[0].clause("alien")
    {'match': {'title': {'query': 'alien', 'operator': 'or'}}}
    """

    features: tuple[Feature, ...]
    candidates: _CandidateQuery | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names in the order of the file."""
        return tuple(feature.name for feature in self.features)

    def only(self, names: Collection[str]) -> FeatureSet:
        r"""Return the features with some names, and the same candidate query.

        Examples
        --------
        >>> features = FeatureSet.parse('[features]\na = { match = "title" }\nb = { match = "overview" }')
        >>> features.only({"b", "c"}).names
        ('b',)
        """
        return dataclasses.replace(self, features=tuple(each for each in self.features if each.name in names))

    @property
    def compares_vectors(self) -> bool:
        """Whether the features or the candidate query need the embedding of the query."""
        if self.candidates is not None and self.candidates.vector is not None:
            return True
        return any(
            isinstance(feature, VectorSimilarity) or (isinstance(feature, Script) and "params.vector" in feature.source)
            for feature in self.features
        )

    @property
    def fingerprint(self) -> str:
        """Hash that is equal for files with the same meaning."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    @classmethod
    def read(cls, path: PathLike) -> FeatureSet:
        """Read and check a feature file. Raises `FileFormatError` if it is invalid."""
        return cls.parse(Path(path).read_text(), path)

    @classmethod
    def parse(cls, text: str, path: PathLike = "features.toml") -> FeatureSet:
        """Parse and check the text of a feature file; `path` is used in error messages."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileFormatError(path, 0, f"invalid TOML ({error}): correct the file") from None
        try:
            return _parse_feature_set(table)
        except ParameterError as error:
            raise FileFormatError(path, 0, str(error)) from None


def _parse_feature_set(table: Mapping[str, Any]) -> FeatureSet:
    _check_keys("the file", table, ("search", "features"))
    definitions = table.get("features")
    if not isinstance(definitions, dict) or not definitions:
        raise ParameterError(
            'no features: expected a table [features] with entries such as title = { match = "title" }'
        )
    search = table.get("search")
    return FeatureSet(
        tuple(_parse_feature(name, definition) for name, definition in definitions.items()),
        None if search is None else _parse_candidates(search),
    )


def _parse_candidates(table: Any) -> _CandidateQuery:
    if not isinstance(table, dict):
        raise ParameterError("search must be a table: [search]")
    options = {name: table[name] for name in ("vector", "nearest", "vector_boost") if name in table}
    text = _parse_feature("search", {name: value for name, value in table.items() if name not in options})
    if not isinstance(text, TextFeature):
        raise ParameterError("search needs one of match, multi_match, phrase or clause")
    hints = typing.get_type_hints(_CandidateQuery)
    for key, value in options.items():
        _check_type("search", key, value, hints[key])
    if options.get("nearest", 1) < 1:
        raise ParameterError(f"search: nearest must be at least 1, got {options['nearest']}")
    return _CandidateQuery(text, **options)


def _parse_feature(name: str, definition: Any) -> Feature:
    if is_reserved(name):
        raise ParameterError(
            f"{name}: the names qid, y, doc_id and query.NAME are reserved for other columns of the log; "
            "rename the feature"
        )
    kinds = [kind for kind in KINDS if isinstance(definition, dict) and kind in definition]
    if len(kinds) != 1:
        got = json.dumps(definition, default=str) if not kinds else " and ".join(kinds)
        raise ParameterError(
            f'{name}: expected exactly one of {", ".join(KINDS)}, as in {{ match = "title" }}; got {got}'
        )
    [kind] = kinds
    cls: type[Any]
    cls, attribute = KINDS[kind]
    options = [field.name for field in dataclasses.fields(cls) if field.name not in ("name", attribute)]
    _check_keys(name, [key for key in definition if key != kind], options)
    hints = typing.get_type_hints(cls)
    for key, value in definition.items():
        _check_type(name, key, value, hints[attribute if key == kind else key])
    if definition[kind] in ("", [], {}):
        raise ParameterError(f"{name}: {kind} must not be empty")
    if "max" in definition and definition["max"] <= 0:
        raise ParameterError(f"{name}: max must be positive, got {definition['max']}")
    feature: Feature = cls(name, **{attribute if key == kind else key: value for key, value in definition.items()})
    if isinstance(feature, RawClause):
        try:
            feature.clause("")
        except DataError as error:
            raise ParameterError(f"{name}: {error}") from None
    return feature


def _check_keys(where: str, keys: Iterable[str], expected: Sequence[str]) -> None:
    for key in keys:
        if key not in expected:
            raise ParameterError(f"{where}: unknown key {key!r}; expected {', '.join(expected)}")


def _check_type(where: str, key: str, value: Any, hint: Any) -> None:
    if not _has_type(value, hint):
        raise ParameterError(f"{where}: {key} must be {_describe_type(hint)}, got {value!r}")


def _has_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_has_type(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is Sequence:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if origin is Mapping:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is hint


def _describe_type(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe_type(choice) for choice in get_args(hint) if choice is not type(None))
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    names = {Sequence: "a list of strings", Mapping: "a table", str: "a string", int: "an integer", float: "a number"}
    return names[origin or hint]


# --- check the fields that features use against those of the index ----------------------------------------------------
#
# A clause on an unknown field matches nothing without an error, so a misspelled name would become a column of zeros.


FieldKind = Literal["a number", "a vector"]

_INTEGERS = {"long", "integer", "short", "byte", "unsigned_long"}
_TYPES: dict[FieldKind, set[str]] = {
    "a number": _INTEGERS | {"double", "float", "half_float", "scaled_float"},
    "a vector": {"dense_vector", "knn_vector"},
}


@dataclass(frozen=True)
class _RequiredField:
    """A field that a feature uses."""

    name: str
    """Name of the field."""
    used_by: str
    """What uses it, for error messages."""
    kind: FieldKind | None = None
    """Kind that the field must have."""


def required_fields(features: FeatureSet) -> list[_RequiredField]:
    r"""Return the fields that features and candidates use, except in field patterns and custom clauses.

    Examples
    --------
    >>> required_fields(FeatureSet.parse('[features]\nvotes = { field = "votes" }'))
    [_RequiredField(name='votes', used_by="feature 'votes'", kind='a number')]
    """
    named = [(f"feature {feature.name!r}", feature) for feature in features.features]
    required = []
    if features.candidates is not None:
        named.append(("[search]", features.candidates.text))
        if features.candidates.vector is not None:
            required.append(_RequiredField(features.candidates.vector, "[search]", "a vector"))
    return required + [field for used_by, feature in named for field in _fields_of(used_by, feature)]


def check_fields(required: Sequence[_RequiredField], field_caps: Mapping[str, Mapping[str, Any]], index: str) -> None:
    """Raise an error if a field is not in the index or has the wrong type."""
    for field in required:
        if field.name not in field_caps:
            raise EngineRefusedError(
                f"{field.used_by} uses field {field.name!r}, which index {index!r} does not have: correct the feature "
                "file, or index documents that have the field"
            )
        types = [name for name in field_caps[field.name] if name != "unmapped"]
        if field.kind is not None and not _TYPES[field.kind].issuperset(types):
            raise EngineRefusedError(
                f"{field.used_by} uses field {field.name!r} as {field.kind}, but in index {index!r} it is of type "
                f"{' and '.join(types)}: use another field, or compute the value with a script"
            )


def _fields_of(used_by: str, feature: Feature) -> Iterator[_RequiredField]:
    if isinstance(feature, Match | Phrase):
        yield _RequiredField(feature.field, used_by)
    elif isinstance(feature, MultiMatch):
        names = (field.partition("^")[0] for field in feature.fields)
        yield from (_RequiredField(name, used_by) for name in names if "*" not in name)
    elif isinstance(feature, FieldValue):
        yield _RequiredField(feature.field, used_by, "a number")
    elif isinstance(feature, VectorSimilarity):
        yield _RequiredField(feature.field, used_by, "a vector")


class FieldCheck:
    """Checks once that an index has the fields of features."""

    def __init__(self, features: FeatureSet | None, index: str) -> None:
        self._features = features
        self._index = index
        self._lock = threading.Lock()
        self._done = features is None

    def __call__(self, capabilities: Callable[[str], Mapping[str, Any]]) -> None:
        """Check, given what returns the capabilities of comma-separated fields."""
        if self._done or self._features is None:
            return
        with self._lock:
            required = required_fields(self._features)
            if required and not self._done:
                check_fields(required, capabilities(",".join(sorted({field.name for field in required}))), self._index)
            self._done = True
