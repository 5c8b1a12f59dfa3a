"""Scores and field values of hits, as rows of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kinrank.arrays import Float32
from kinrank.engines.features import FieldValue, QueryLength, VectorSimilarity
from kinrank.engines.query_dsl import QueryBuilder, score_offset


class HitValues(NamedTuple):
    """Scores by feature name, field values by field name, and the requested part of the document, for one hit."""

    scores: dict[str, float]
    fields: dict[str, float]
    source: Mapping[str, Any]

    @classmethod
    def from_hit(cls, hit: Mapping[str, Any], scores: dict[str, float] | None = None) -> HitValues:
        """Read a hit with ``docvalue_fields``. A field with several values counts by its first, as in scripts."""
        fields = {field: float(values[0]) for field, values in hit.get("fields", {}).items()}
        return cls(scores or {}, fields, hit.get("_source", {}))


def feature_matrix(documents: Sequence[HitValues], builder: QueryBuilder) -> Float32:
    """Return the features of documents, one row each."""
    # Column by column: there are many more documents than features.
    columns = np.empty((len(builder.features.features), len(documents)), dtype=np.float32)
    for column, feature in zip(columns, builder.features.features, strict=True):
        if isinstance(feature, QueryLength):
            column[:] = feature.value(builder.query)
        elif isinstance(feature, FieldValue):
            column[:] = feature.values([document.fields.get(feature.field, np.nan) for document in documents])
        else:
            scores = np.array([document.scores.get(feature.name, np.nan) for document in documents], dtype=np.float64)
            column[:] = scores - score_offset(feature) if isinstance(feature, VectorSimilarity) else scores
        if feature.missing == "zero":
            column[np.isnan(column)] = 0.0
    return np.ascontiguousarray(columns.T)
