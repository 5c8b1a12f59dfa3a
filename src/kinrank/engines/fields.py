"""The fields that features ask for, checked against those of the index.

A clause on a field that is not there quietly matches nothing, and a misspelt name would be a column of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kinrank.engines.feature_set import FeatureSet
from kinrank.engines.features import Feature, FieldValue, Match, MultiMatch, Phrase, VectorSimilarity
from kinrank.errors import EngineRefusedError

_WHOLE = {"long", "integer", "short", "byte", "unsigned_long"}
_NUMBERS = _WHOLE | {"double", "float", "half_float", "scaled_float"}
_KINDS = {"a number": _NUMBERS, "a vector": {"dense_vector", "knn_vector"}}


@dataclass(frozen=True)
class RequiredField:
    """A field, who asks for it, and what it must be: "a number", "a vector" or None for anything."""

    name: str
    who: str
    kind: str | None = None


def required_fields(features: FeatureSet) -> list[RequiredField]:
    r"""The fields that features and candidates ask for; patterns and clauses of one's own are not looked into.

    Examples
    --------
    >>> required_fields(FeatureSet.parse('[features]\nvotes = { field = "votes" }'))
    [RequiredField(name='votes', who="feature 'votes'", kind='a number')]
    """
    named = [(f"feature {feature.name!r}", feature) for feature in features.features]
    wanted = []
    if features.candidates is not None:
        named.append(("[search]", features.candidates.text))
        if features.candidates.vector is not None:
            wanted.append(RequiredField(features.candidates.vector, "[search]", "a vector"))
    return wanted + [field for who, feature in named for field in _wanted(who, feature)]


def check_fields(wanted: Sequence[RequiredField], there: Mapping[str, Mapping[str, Any]], index: str) -> None:
    """Raise where a field is not there, or is of another kind.

    Parameters
    ----------
    wanted
        What is asked for.
    there
        Field to its types, as ``_field_caps`` answers.
    index
        The name of the index, for the message.
    """
    for field in wanted:
        if field.name not in there:
            raise EngineRefusedError(
                f"{field.who} asks for field {field.name!r}, which index {index!r} does not have: mend the "
                "feature file, or index documents that have it"
            )
        types = [kind for kind in there[field.name] if kind != "unmapped"]
        if field.kind is not None and not _KINDS[field.kind].issuperset(types):
            raise EngineRefusedError(
                f"{field.who} asks for field {field.name!r} as {field.kind}, but in index {index!r} it is "
                f"{' and '.join(types)}: name another field, or compute it from this one with a script"
            )


def _wanted(who: str, feature: Feature) -> Iterator[RequiredField]:
    if isinstance(feature, Match | Phrase):
        yield RequiredField(feature.field, who)
    elif isinstance(feature, MultiMatch):
        plain = (field.partition("^")[0] for field in feature.fields)
        yield from (RequiredField(field, who) for field in plain if "*" not in field)
    elif isinstance(feature, FieldValue):
        yield RequiredField(feature.field, who, "a number")
    elif isinstance(feature, VectorSimilarity):
        yield RequiredField(feature.field, who, "a vector")
