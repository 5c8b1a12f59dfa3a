"""Nested states: the arrays of a learner among those of a ranker, under a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


def nest(**parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Combine several states into one, each under its name.

    Examples
    --------
    >>> nest(learner={"coef": 1}, prepare={"fill": 2})
    {'learner.coef': 1, 'prepare.fill': 2}
    """
    return {f"{part}.{name}": array for part, state in parts.items() for name, array in state.items()}


def unnest(state: Mapping[str, NDArray[Any]], part: str) -> dict[str, NDArray[Any]]:
    """Return the state of one part of a nested state.

    Examples
    --------
    >>> unnest({"learner.coef": 1, "prepare.fill": 2}, "learner")
    {'coef': 1}
    """
    prefix = f"{part}."
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
