"""Filters that callers of a service may send to the engine: clauses of its query language, limited in kind and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kinrank.engines.features import Clause
from kinrank.errors import ParameterError

LEAVES = ("term", "terms", "range", "exists", "ids", "match", "geo_distance", "geo_bounding_box")
"""Clauses that cost little and read only the documents: no scripts, patterns, joins or lookups."""
_OCCURRENCES = ("must", "must_not", "should", "filter")
_SETTINGS = ("boost", "_name", "distance", "distance_type", "validation_method", "ignore_unmapped")
_MAX_DEPTH = 5
_MAX_VALUES = 1000


def check_filter(clause: Clause) -> None:
    """Raise `ParameterError` unless a clause is a filter of allowed kinds and size.

    Examples
    --------
    >>> check_filter({"bool": {"must_not": [{"term": {"sold": True}}]}})
    >>> check_filter({"script": {"script": "true"}})
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: filter: 'script' is not allowed: use bool, term, terms, range, exists, ids, match, \
geo_distance, geo_bounding_box
    """
    _check(clause, 1)
    if (count := _count(clause)) > _MAX_VALUES:
        raise ParameterError(f"filter: {count:,} values, but at most {_MAX_VALUES:,} are allowed")


def filter_fields(clause: Clause) -> Iterator[str]:
    """Yield the fields that a filter reads.

    Examples
    --------
    >>> list(filter_fields({"bool": {"must_not": [{"term": {"sold": True}}, {"exists": {"field": "price"}}]}}))
    ['sold', 'price']
    """
    for kind, body in clause.items():
        if kind == "bool":
            for clauses in body.values():
                for inner in clauses if isinstance(clauses, list) else [clauses]:
                    yield from filter_fields(inner) if isinstance(inner, dict) else ()
        elif kind == "exists":
            yield str(body.get("field"))
        elif kind != "ids":
            yield from (name for name in body if name not in _SETTINGS)


def _check(clause: Any, depth: int) -> None:
    if not isinstance(clause, Mapping) or len(clause) != 1:
        raise ParameterError('filter: expected a clause with one key, such as {"term": {"color": "red"}}')
    if depth > _MAX_DEPTH:
        raise ParameterError(f"filter: nested more than {_MAX_DEPTH} levels deep")
    [(kind, body)] = clause.items()
    if kind not in ("bool", *LEAVES):
        raise ParameterError(f"filter: {kind!r} is not allowed: use {', '.join(('bool', *LEAVES))}")
    if not isinstance(body, Mapping):
        raise ParameterError(f"filter: {kind!r} must be an object")
    if kind == "terms" and any(isinstance(values, Mapping) for values in body.values()):
        raise ParameterError("filter: 'terms' with a lookup is not allowed: list the values")
    if kind != "bool":
        return
    for occurrence, clauses in body.items():
        if occurrence == "minimum_should_match":
            continue
        if occurrence not in _OCCURRENCES:
            raise ParameterError(f"filter: 'bool' has {', '.join(_OCCURRENCES)}, got {occurrence!r}")
        for inner in clauses if isinstance(clauses, list) else [clauses]:
            _check(inner, depth + 1)


def _count(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1
