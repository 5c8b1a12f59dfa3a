"""Fill the ``{{name}}`` placeholders of clauses, in feature files and in the clauses of targets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.errors import DataError

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def fill_placeholders(template: Any, values: Mapping[str, Any]) -> Any:
    """Return the template with every ``{{name}}`` replaced by the value of that name.

    A string that is only a placeholder becomes the value itself, for example a vector. Within a longer string the
    value is inserted as text. Keys are not changed.

    Parameters
    ----------
    template
        A JSON value: a clause, or clauses by feature.
    values
        What is known about the query, such as its text and its vector.

    Examples
    --------
    >>> clauses = {"title": {"match": {"title": "{{text}}"}}, "dense": {"query": "{{vector}}", "limit": 100}}
    >>> fill_placeholders(clauses, {"text": "heat", "vector": [0.5, 0.5]})
    {'title': {'match': {'title': 'heat'}}, 'dense': {'query': [0.5, 0.5], 'limit': 100}}
    """
    if isinstance(template, Mapping):
        return {key: fill_placeholders(part, values) for key, part in template.items()}
    if isinstance(template, list | tuple):
        return [fill_placeholders(part, values) for part in template]
    if not isinstance(template, str):
        return template
    if match := _PLACEHOLDER.fullmatch(template):
        return _value(match[1], values)
    return _PLACEHOLDER.sub(lambda match: str(_value(match[1], values)), template)


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        names = ", ".join(f"{{{{{value}}}}}" for value in values) or "none"
        raise DataError(f"unknown placeholder {{{{{name}}}}}; available: {names}")
    value = values[name]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
