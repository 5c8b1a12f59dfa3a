"""What a search must match and return besides the text of the query, and what callers of a service may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kinrank.engines.features import Clause
from kinrank.errors import ParameterError

BUCKETS = ("terms", "range", "date_range", "histogram", "date_histogram", "missing", "filter")
"""Aggregations that may have others inside."""
METRICS = ("min", "max", "avg", "sum", "stats", "value_count", "cardinality")
_NESTED = ("aggs", "aggregations")
_MAX_DEPTH = 3
_MAX_FACETS = 50
_MAX_BUCKETS = 1000
_HISTOGRAM_BUCKETS = 100  # as many as a chart shows; the engine knows the number only afterwards
_MAX_TOTAL = 10_000


def check_facets(facets: Mapping[str, Clause]) -> None:
    """Raise `ParameterError` unless all facets are aggregations of allowed kinds and size.

    Examples
    --------
    >>> check_facets({"genres": {"terms": {"field": "genres"}, "aggs": {"first": {"min": {"field": "year"}}}}})
    >>> check_facets({"first": {"top_hits": {"size": 1}}})
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: facets: 'top_hits' is not allowed: use terms, range, date_range, histogram, \
date_histogram, missing, filter, min, max, avg, sum, stats, value_count, cardinality
    """
    if (count := sum(1 for _ in _every(facets, 1))) > _MAX_FACETS:
        raise ParameterError(f"facets: {count:,} aggregations, but at most {_MAX_FACETS:,} are allowed")
    if (buckets := _count_buckets(facets)) > _MAX_TOTAL:
        raise ParameterError(
            f"facets: up to {buckets:,} buckets with those inside others, but at most {_MAX_TOTAL:,} are allowed: ask "
            "for fewer terms, or nest less"
        )


def facet_fields(facets: Mapping[str, Clause]) -> Iterator[str]:
    """Yield the fields that facets read."""
    for facet in facets.values():
        for kind, body in facet.items():
            if kind in _NESTED:
                yield from facet_fields(body)
            elif kind == "filter":
                yield from filter_fields(body)
            else:
                yield str(body.get("field"))


def _count_buckets(facets: Mapping[str, Clause]) -> int:
    """Return how many buckets facets may have, those inside others counted in each of them."""
    total = 0
    for facet in facets.values():
        [(kind, body)] = [(key, value) for key, value in facet.items() if key not in _NESTED]
        if kind == "terms":
            own = int(body.get("size", 10))
        elif kind in ("range", "date_range"):
            own = len(body.get("ranges", ()))
        else:
            own = _HISTOGRAM_BUCKETS if kind in ("histogram", "date_histogram") else 1
        total += own * max(1, sum(_count_buckets(facet[key]) for key in _NESTED if key in facet))
    return total


def _every(facets: Any, depth: int) -> Iterator[str]:
    """Check facets and those inside them, and yield their kinds."""
    if depth > _MAX_DEPTH:
        raise ParameterError(f"facets: nested more than {_MAX_DEPTH} levels deep")
    for name, facet in _mapping(facets, "facets").items():
        kinds = [key for key in _mapping(facet, f"facet {name!r}") if key not in _NESTED]
        if len(kinds) != 1:
            raise ParameterError(
                f'facet {name!r}: expected one aggregation, such as {{"terms": {{"field": "genres"}}}}'
            )
        kind, inside = kinds[0], [facet[key] for key in _NESTED if key in facet]
        if kind not in (*BUCKETS, *METRICS):
            raise ParameterError(f"facets: {kind!r} is not allowed: use {', '.join((*BUCKETS, *METRICS))}")
        _check_body(kind, facet[kind])
        yield kind
        for aggregation in inside:
            yield from _every(aggregation, depth + 1)


def _check_body(kind: str, body: Any) -> None:
    if kind == "filter":
        check_filter(body)
        return
    settings = _mapping(body, f"facets: {kind!r}")
    if "script" in settings:
        raise ParameterError("facets: 'script' is not allowed: aggregate a field")
    if any(isinstance(settings.get(name), str) for name in ("include", "exclude")):
        raise ParameterError("facets: 'include' and 'exclude' with a pattern are not allowed: list the values")
    size = settings.get("size", 1)
    if not isinstance(size, int) or size > _MAX_BUCKETS:
        raise ParameterError(f"facets: {kind!r} returns at most {_MAX_BUCKETS:,} buckets, got size {size!r}")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ParameterError(f"{what} must be an object, got {type(value).__name__}")
    return value


LEAVES = ("term", "terms", "range", "exists", "ids", "match", "geo_distance", "geo_bounding_box")
"""Clauses that cost little and read only the documents: no scripts, patterns, joins or lookups."""
_OCCURRENCES = ("must", "must_not", "should", "filter")
_SETTINGS = ("boost", "_name", "distance", "distance_type", "validation_method", "ignore_unmapped")
_MAX_CLAUSE_DEPTH = 5
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
    if depth > _MAX_CLAUSE_DEPTH:
        raise ParameterError(f"filter: nested more than {_MAX_CLAUSE_DEPTH} levels deep")
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


# --- what a search must match and return, besides the text of the query -----------------------------------------------


@dataclass(frozen=True)
class SearchOptions:
    """What documents must match, and what is returned with them.

    Examples
    --------
    >>> SearchOptions({"term": {"genres": "drama"}}, facets={"years": {"stats": {"field": "year"}}}).check()
    """

    filter_clause: Clause | None = None
    """Clause of the engine's query language that documents must match. It changes no score."""
    fields: Sequence[str] = ()
    """Fields of the documents to return; ``*`` stands for any characters."""
    facets: Mapping[str, Clause] = field(default_factory=dict)
    """Aggregations of the engine's query language over all documents that match, by name."""

    def check(self) -> None:
        """Raise `ParameterError` if the filter or a facet is not allowed."""
        if self.filter_clause is not None:
            check_filter(self.filter_clause)
        check_facets(self.facets)

    def read_fields(self) -> set[str]:
        """Return the fields that the search reads for its caller: returned, filtered by or aggregated."""
        filtered = () if self.filter_clause is None else filter_fields(self.filter_clause)
        return {*self.fields, *filtered, *facet_fields(self.facets)}

    def also_matching(self, clause: Clause | None) -> SearchOptions:
        """Return these options for documents that also match a clause."""
        if clause is None or self.filter_clause is None:
            return replace(self, filter_clause=clause or self.filter_clause)
        return replace(self, filter_clause={"bool": {"filter": [clause, self.filter_clause]}})

    def response_body(self) -> dict[str, Any]:
        """Return the parts of a request that define what is returned with the hits."""
        body: dict[str, Any] = {"_source": list(self.fields) or False}
        return {**body, "aggs": dict(self.facets)} if self.facets else body


PLAIN = SearchOptions()
"""Documents by id only, not filtered."""
