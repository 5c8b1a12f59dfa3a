"""Feature files: which features an engine computes, and where candidates come from.

::

    [search]                                        # the engine's own query, which finds the candidates
    multi_match = ["title^3", "overview"]

    [features]
    title = { match = "title" }
    title_and = { match = "title", operator = "and", missing = "nan" }
    exact = { phrase = "title" }
    all = { multi_match = ["title^3", "overview"], type = "most_fields" }
    near = { vector = "embedding" }
    votes = { field = "votes", transform = "log1p" }
    fresh = { script = "Math.max(0, doc['year'].value - 1900)" }
    words = { query_length = "words" }
    genre = { clause = { term = { genre = "{{text}}" } }, max = 20.0 }
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from kinrank.data.tables import is_reserved
from kinrank.data.textfile import PathLike
from kinrank.engines.features import (
    Feature,
    FieldValue,
    Match,
    MultiMatch,
    Phrase,
    QueryLength,
    RawClause,
    Script,
    TextFeature,
    VectorSimilarity,
)
from kinrank.errors import DataError, FileFormatError, ParameterError

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
class CandidateQuery:
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
    candidates: CandidateQuery | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names in the order of the file."""
        return tuple(feature.name for feature in self.features)

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


def _parse_candidates(table: Any) -> CandidateQuery:
    if not isinstance(table, dict):
        raise ParameterError("search must be a table: [search]")
    options = {name: table[name] for name in ("vector", "nearest", "vector_boost") if name in table}
    text = _parse_feature("search", {name: value for name, value in table.items() if name not in options})
    if not isinstance(text, TextFeature):
        raise ParameterError("search needs one of match, multi_match, phrase or clause")
    hints = typing.get_type_hints(CandidateQuery)
    for key, value in options.items():
        _check_type("search", key, value, hints[key])
    if options.get("nearest", 1) < 1:
        raise ParameterError(f"search: nearest must be at least 1, got {options['nearest']}")
    return CandidateQuery(text, **options)


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
