"""Check the fields that features use against those of the index.

A clause on an unknown field matches nothing without an error, so a misspelled name would become a column of zeros.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kinrank.engines.feature_set import FeatureSet
from kinrank.engines.features import Feature, FieldValue, Match, MultiMatch, Phrase, VectorSimilarity
from kinrank.errors import EngineRefusedError

FieldKind = Literal["a number", "a vector"]

_INTEGERS = {"long", "integer", "short", "byte", "unsigned_long"}
_TYPES: dict[FieldKind, set[str]] = {
    "a number": _INTEGERS | {"double", "float", "half_float", "scaled_float"},
    "a vector": {"dense_vector", "knn_vector"},
}


@dataclass(frozen=True)
class RequiredField:
    """A field that a feature uses."""

    name: str
    """Name of the field."""
    used_by: str
    """What uses it, for error messages."""
    kind: FieldKind | None = None
    """Kind that the field must have."""


def required_fields(features: FeatureSet) -> list[RequiredField]:
    r"""Return the fields that features and candidates use, except in field patterns and custom clauses.

    Examples
    --------
    >>> required_fields(FeatureSet.parse('[features]\nvotes = { field = "votes" }'))
    [RequiredField(name='votes', used_by="feature 'votes'", kind='a number')]
    """
    named = [(f"feature {feature.name!r}", feature) for feature in features.features]
    required = []
    if features.candidates is not None:
        named.append(("[search]", features.candidates.text))
        if features.candidates.vector is not None:
            required.append(RequiredField(features.candidates.vector, "[search]", "a vector"))
    return required + [field for used_by, feature in named for field in _fields_of(used_by, feature)]


def check_fields(required: Sequence[RequiredField], field_caps: Mapping[str, Mapping[str, Any]], index: str) -> None:
    """Raise an error if a field is not in the index or has the wrong type.

    Parameters
    ----------
    required
        Fields to check.
    field_caps
        Types by field, as returned by ``_field_caps``.
    index
        Name of the index, for error messages.
    """
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


def _fields_of(used_by: str, feature: Feature) -> Iterator[RequiredField]:
    if isinstance(feature, Match | Phrase):
        yield RequiredField(feature.field, used_by)
    elif isinstance(feature, MultiMatch):
        names = (field.partition("^")[0] for field in feature.fields)
        yield from (RequiredField(name, used_by) for name in names if "*" not in name)
    elif isinstance(feature, FieldValue):
        yield RequiredField(feature.field, used_by, "a number")
    elif isinstance(feature, VectorSimilarity):
        yield RequiredField(feature.field, used_by, "a vector")


class FieldCheck:
    """Checks once that an index has the fields of features.

    Parameters
    ----------
    features
        The features; None if there are none.
    index
        The name of the index.
    """

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
