"""Find features by name or position."""

from __future__ import annotations

from collections.abc import Sequence

from kinrank.errors import ParameterError


def feature_position(feature: str | int, feature_names: Sequence[str]) -> int:
    """Return the column of a feature given by name or by column.

    Examples
    --------
    >>> feature_position("bm25", ["title", "bm25"])
    1
    """
    if isinstance(feature, str):
        if feature not in feature_names:
            raise ParameterError(f"reference {feature!r} is not a feature: choose one of {', '.join(feature_names)}")
        return feature_names.index(feature)
    if not 0 <= feature < len(feature_names):
        raise ParameterError(f"reference must be a column from 0 to {len(feature_names) - 1}, got {feature}")
    return int(feature)
