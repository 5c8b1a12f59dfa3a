"""Check settings that have a few named values."""

from __future__ import annotations

from collections.abc import Collection

from kinrank.errors import ParameterError


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise ParameterError if a setting is not one of its choices."""
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
