"""Clauses written once, with places for what differs between queries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.errors import DataError

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def fill_clauses(clauses: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Clauses with every ``{{name}}`` replaced by the value of that name.

    A text that is nothing but a place becomes the value itself, a vector for example; within a longer text the value
    is written into it. Keys stay as they are.

    Parameters
    ----------
    clauses
        A clause for each feature, in the form of the engine.
    values
        What is known of the query: the text, its vector...

    Examples
    --------
    >>> clauses = {"title": {"match": {"title": "{{text}}"}}, "dense": {"query": "{{vector}}", "limit": 100}}
    >>> fill_clauses(clauses, {"text": "heat", "vector": [0.5, 0.5]})
    {'title': {'match': {'title': 'heat'}}, 'dense': {'query': [0.5, 0.5], 'limit': 100}}
    """
    return {name: _filled(clause, values) for name, clause in clauses.items()}


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, Mapping):
        return {key: _filled(entry, values) for key, entry in part.items()}
    if isinstance(part, list | tuple):
        return [_filled(entry, values) for entry in part]
    if not isinstance(part, str):
        return part
    whole = _PLACE.fullmatch(part)
    if whole:
        return _value(whole[1], values)
    return _PLACE.sub(lambda place: str(_value(place[1], values)), part)


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        known = ", ".join(values) or "nothing"
        raise DataError(f"a clause has a place for {{{{{name}}}}}, which the query does not have; it has {known}")
    value = values[name]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
