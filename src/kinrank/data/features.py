"""Names and positions of features."""

from __future__ import annotations

from collections.abc import Sequence

from kinrank.errors import DataError, ParameterError


def default_names(n_features: int) -> tuple[str, ...]:
    """Return the default feature names: f1, f2, ..."""
    return tuple(f"f{i}" for i in range(1, n_features + 1))


def check_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Return feature names as a tuple; raise DataError if there is not one unique name per feature."""
    unique = set(names)
    if len(names) != n_features or len(unique) != n_features:
        raise DataError(
            f"feature_names must be {n_features} different names, one per column of X, got {len(names)} names, "
            f"{len(unique)} of them different"
        )
    return tuple(names)


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
