"""Chosen for: the texts of queries for which a document was chosen, as a field of the index that finds the document.

The field, ``chosen_for`` say, is searched like any other. A judged query must not find its own text there: it would
give its label away. So texts are stored by fold, next to the field, in ``chosen_for_folds.texts_N``, and the index
copies them to the field and to ``chosen_for_folds.without_N``, which has those of all folds but one. `kinrank log`
searches and scores each query in the field without its own fold; see
`kinrank.engines.base.Engine.without_own_texts`.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, normalize_text
from kinrank.engines.features import Feature, FeatureSet, Match, MultiMatch, Phrase, RawClause, Script
from kinrank.errors import DataError, EngineRefusedError, ParameterError

FOLDS = 5
_MARK = {"kinrank": "chosen_for"}  # the meta of the field, by which it is recognized
_UNNAMED = ("query_string", "simple_query_string", "multi_match", "combined_fields")
"""Clauses that search all fields if none is named."""


class Choice(NamedTuple):
    """A document that was chosen for a query."""

    document: str
    text: str
    weight: float
    """How much the choice counts, next to others of the document."""


@dataclass(frozen=True, kw_only=True)
class TextLimits:
    """Which texts are written."""

    min_clients: int = 3
    """Clients who asked the query and chose the document; a file of judgments does not have their number."""
    days: int = 365
    """Choices of earlier days do not count."""
    half_life: float = 90.0
    """Days after which a choice counts half."""
    texts: int = 20
    """Texts of one document; 0 removes all."""
    length: int = 100
    """Characters of a text; longer ones are left out."""

    def __post_init__(self) -> None:
        for name, least in (("min_clients", 1), ("days", 1), ("half_life", 1e-6), ("texts", 0), ("length", 1)):
            if not getattr(self, name) >= least:
                raise ParameterError(f"{name} must be at least {least:g}, got {getattr(self, name)}")

    def of(self, choices: Iterable[Choice]) -> dict[str, list[str]]:
        """Return the texts of each document, those that count most; of equal texts the one that comes first.

        Examples
        --------
        >>> choices = [Choice("d7", "Alien ", 1), Choice("d7", "alien", 1), Choice("d7", "space", 1.5)]
        >>> TextLimits(texts=1).of(choices), TextLimits(texts=9, length=5).of(choices)
        ({'d7': ['Alien']}, {'d7': ['Alien', 'space']})
        """
        weights: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        names: dict[str, str] = {}
        for document, text, weight in choices:
            words, key = " ".join(text.split()), normalize_text(text)
            if words and len(words) <= self.length and weight > 0:
                names.setdefault(key, words)
                weights[document][key] += weight
        found = {
            document: [names[key] for key in sorted(counted, key=lambda key: (-counted[key], key))[: self.texts]]
            for document, counted in weights.items()
        }
        return {document: texts for document, texts in found.items() if texts}


@dataclass
class WrittenTexts:
    """Numbers of documents whose texts were written."""

    written: int = 0
    removed: int = 0
    """Documents that have no texts any more."""
    unchanged: int = 0
    absent: int = 0
    """Documents that are not in the index."""


def judged_choices(judged: QuerySet) -> Iterator[Choice]:
    """Yield the choices in judgments: documents with a grade above 0."""
    if TEXT not in judged.query_columns or judged.doc_id is None:
        raise DataError("the judgments have no texts of queries, or no document ids: add them")
    rows = np.flatnonzero(judged.judged & (np.nan_to_num(judged.grades) > 0))
    texts = judged.query_columns[TEXT][judged.query_of_row[rows]]
    for document, text, grade in zip(judged.doc_id[rows], texts, judged.grades[rows], strict=True):
        yield Choice(str(document), str(text), float(grade))


def fold_of(text: str) -> int:
    """Return the fold of a text; texts with the same words, in any order, have the same.

    Examples
    --------
    >>> fold_of("Spider-Man 2"), fold_of(" 2 spider man"), fold_of("alien")
    (3, 3, 4)
    """
    words = " ".join(sorted(re.findall(r"\w+", normalize_text(text))))
    return hashlib.blake2b(words.encode(errors="surrogatepass"), digest_size=8).digest()[0] % FOLDS


def stored(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return texts by fold, as a document stores them."""
    folds: dict[str, list[str]] = {}
    for text in texts:
        folds.setdefault(f"texts_{fold_of(text)}", []).append(text)
    return folds


def folds_field(field: str) -> str:
    """Return the name of the field next to a field that stores the texts by fold."""
    return f"{field}_folds"


def mapping(field: str) -> dict[str, Any]:
    """Return the mapping of the field and of the one next to it."""
    folds = folds_field(field)
    properties: dict[str, Any] = {f"without_{fold}": {"type": "text"} for fold in range(FOLDS)}
    for fold in range(FOLDS):
        others = [f"{folds}.without_{other}" for other in range(FOLDS) if other != fold]
        properties[f"texts_{fold}"] = {"type": "text", "index": False, "norms": False, "copy_to": [field, *others]}
    return {"properties": {field: {"type": "text", "meta": _MARK}, folds: {"properties": properties}}}


def fields_in(properties: Mapping[str, Any]) -> list[str]:
    """Return the fields of a mapping that have such texts."""
    return [name for name, each in properties.items() if each.get("meta") == _MARK]


def without_fold(features: FeatureSet, fields: Sequence[str], fold: int) -> FeatureSet:
    r"""Return features and candidates that see the fields without the texts of a fold.

    Raise `EngineRefusedError` for a clause that may read such a field without naming it.

    Examples
    --------
    >>> features = FeatureSet.parse('[features]\nchosen = { match = "chosen_for" }')
    >>> without_fold(features, ["chosen_for"], 3).features[0].clause("alien")
    {'match': {'chosen_for_folds.without_3': {'query': 'alien', 'operator': 'or'}}}
    """
    candidates = features.candidates
    return FeatureSet(
        tuple(_without(feature, fields, fold) for feature in features.features),
        None if candidates is None else replace(candidates, text=_without(candidates.text, fields, fold)),
    )


def _without(feature: Any, fields: Sequence[str], fold: int) -> Any:
    renamed = {field: f"{folds_field(field)}.without_{fold}" for field in fields}
    if isinstance(feature, Match | Phrase):
        return replace(feature, field=_renamed(feature, feature.field, renamed))
    if isinstance(feature, MultiMatch):
        return replace(feature, fields=[_renamed(feature, name, renamed) for name in feature.fields])
    if isinstance(feature, RawClause):
        return replace(feature, body=_renamed_in(feature, feature.body, renamed))
    if isinstance(feature, Script):
        _renamed(feature, feature.source, {field: field for field in fields})
    return feature


def _renamed(feature: Feature, name: str, renamed: Mapping[str, str]) -> str:
    """Return the name of a field, with its boost; refuse others that contain or match a renamed one."""
    plain, caret, boost = name.partition("^")
    if plain in renamed:
        return f"{renamed[plain]}{caret}{boost}"
    for field in renamed:
        if field in name or ("*" in plain and any(fnmatchcase(each, plain) for each in (field, renamed[field]))):
            raise EngineRefusedError(
                f"feature {feature.name!r} reads the field {field!r} by {name!r}, so that a judged query would find "
                f"its own text there: name the fields, {field!r} as itself"
            )
    return name


def _renamed_in(feature: Feature, part: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(part, Mapping):
        for kind in _UNNAMED:
            if isinstance(part.get(kind), Mapping) and not {"fields", "default_field"} & part[kind].keys():
                _renamed(feature, "*", renamed)
        return {_renamed(feature, key, renamed): _renamed_in(feature, each, renamed) for key, each in part.items()}
    if isinstance(part, list | tuple):
        return [_renamed_in(feature, each, renamed) for each in part]
    return _renamed(feature, part, renamed) if isinstance(part, str) else part
