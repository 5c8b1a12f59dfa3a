"""The file that says which features an engine is asked for, read and checked.

::

    [search]                                        # the engine's own query: where candidates come from
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
    genre = { clause = { term = { genre = "{query}" } }, max = 20.0 }
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
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
from kinrank.errors import FileFormatError, ParameterError

# The key that names the kind, the class, and the attribute that the key's value is.
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
    """Where the candidates of a query come from: the engine's own query.

    Attributes
    ----------
    text : TextFeature
        What a document must match; its score is the engine's own.
    vector : str, optional
        A field of vectors: the nearest documents are candidates, too, and nearness is added to the score.
    nearest : int
        How many of them.
    vector_boost : float
        What their similarity is multiplied with before it is added.
    """

    text: TextFeature
    vector: str | None = None
    nearest: int = 100
    vector_boost: float = 1.0


@dataclass(frozen=True)
class FeatureSet:
    """Features by name, and where candidates come from.

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
        """One per feature, in the order of the file."""
        return tuple(feature.name for feature in self.features)

    @property
    def fingerprint(self) -> str:
        """The same for two files that mean the same."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    @classmethod
    def read(cls, path: PathLike) -> FeatureSet:
        """Read and check a file; a `FileFormatError` names what is wrong with it."""
        return cls.parse(Path(path).read_text(), path)

    @classmethod
    def parse(cls, text: str, path: PathLike = "features.toml") -> FeatureSet:
        """Read and check the text of a file; `path` is for messages."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileFormatError(path, 0, f"not TOML ({error}); mend the file") from None
        try:
            return _feature_set(table)
        except ParameterError as error:
            raise FileFormatError(path, 0, str(error)) from None


def _feature_set(table: Mapping[str, Any]) -> FeatureSet:
    _refuse_unknown("the file", table, ("search", "features"))
    definitions = table.get("features")
    if not isinstance(definitions, dict) or not definitions:
        raise ParameterError(
            'no features in it: expected a table [features] with lines like title = { match = "title" }'
        )
    search = table.get("search")
    return FeatureSet(
        tuple(_feature(name, words) for name, words in definitions.items()),
        None if search is None else _candidates(search),
    )


def _candidates(words: Any) -> CandidateQuery:
    if not isinstance(words, dict):
        raise ParameterError("search must be a table: [search]")
    own = {name: words[name] for name in ("vector", "nearest", "vector_boost") if name in words}
    rest = {name: value for name, value in words.items() if name not in own}
    text = _feature("search", rest)
    if not isinstance(text, TextFeature):
        raise ParameterError("search needs one of match, multi_match, phrase or clause")
    _check_types("search", CandidateQuery, own)
    if own.get("nearest", 1) < 1:
        raise ParameterError(f"search: nearest must be at least 1, got {own['nearest']}")
    return CandidateQuery(text, **own)


def _feature(name: str, words: Any) -> Feature:
    if is_reserved(name):
        raise ParameterError(
            f"{name}: no feature can be called qid, y, doc_id or query.NAME, which are columns of what is logged; "
            "rename it"
        )
    kinds = [kind for kind in KINDS if isinstance(words, dict) and kind in words]
    if len(kinds) != 1:
        got = f"got {json.dumps(words, default=str)}" if not kinds else f"got {' and '.join(kinds)}"
        raise ParameterError(f'{name}: expected exactly one of {", ".join(KINDS)}, as in {{ match = "title" }}; {got}')
    cls: type[Any]
    cls, attribute = KINDS[kinds[0]]
    settings = {attribute if key == kinds[0] else key: value for key, value in words.items()}
    known = [field.name for field in dataclasses.fields(cls) if field.name not in ("name", attribute)]
    _refuse_unknown(name, [key for key in words if key != kinds[0]], known)
    _check_types(name, cls, settings)
    if settings[attribute] in ("", [], {}):
        raise ParameterError(f"{name}: {kinds[0]} is empty; name what to ask for")
    if "max" in settings and settings["max"] <= 0:
        raise ParameterError(f"{name}: max must be positive, got {settings['max']}")
    made: Feature = cls(name, **settings)
    return made


def _refuse_unknown(where: str, keys: Any, known: Sequence[str]) -> None:
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise ParameterError(f"{where}: unknown key {unknown[0]!r}; it takes {', '.join(known)}")


def _check_types(where: str, cls: type[Any], settings: Mapping[str, Any]) -> None:
    hints = typing.get_type_hints(cls)
    for key, value in settings.items():
        if not _fits(value, hints[key]):
            raise ParameterError(f"{where}: {key} must be {_said(hints[key])}, got {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is Sequence:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if origin is Mapping:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is hint


def _said(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_said(choice) for choice in get_args(hint) if choice is not type(None))
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    names = {Sequence: "a list of texts", Mapping: "a table", str: "a text", int: "a whole number", float: "a number"}
    return names[origin or hint]
