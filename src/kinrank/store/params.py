"""Settings as JSON (plain values as they are, registered classes by name and settings), and nested states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.errors import ParameterError, StoreError
from kinrank.registry import Registry

_PART = "$part"


def encode(value: Any, registries: Iterable[Registry]) -> Any:
    """Return a setting as JSON values.

    Examples
    --------
    >>> from kinrank.learn import LEARNERS
    >>> from kinrank.learn.rankrls import RankRLS
    >>> encode({"learner": RankRLS(penalty=0.1)}, [LEARNERS])["learner"]["$part"]
    'learner'
    """
    known = list(registries)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): encode(entry, known) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encode(entry, known) for entry in value]
    if hasattr(value, "get_params"):
        for registry in known:
            try:
                name = registry.name_of(type(value))
            except ParameterError:
                continue
            params = encode(value.get_params(deep=False), known)
            return {_PART: registry.family, "name": name, "params": params}
    raise StoreError(
        f"a setting of type {type(value).__name__} cannot be saved: use numbers, text, lists, dicts or "
        "registered classes"
    )


def decode(value: Any, registries: Iterable[Registry]) -> Any:
    """Return the setting that `encode` was given. Only registered classes are created."""
    known = list(registries)
    if isinstance(value, list):
        return [decode(entry, known) for entry in value]
    if isinstance(value, dict) and _PART in value:
        for registry in known:
            if registry.family == value[_PART]:
                return registry[value["name"]](**decode(value["params"], known))
        raise StoreError(f"the model has a setting of the unknown family {value[_PART]!r}: upgrade kinrank")
    if isinstance(value, dict):
        return {key: decode(entry, known) for key, entry in value.items()}
    return value


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
