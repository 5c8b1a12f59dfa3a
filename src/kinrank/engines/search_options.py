"""What a search must match and return, besides the text of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kinrank.engines.features import Clause
from kinrank.engines.filters import check_facets, check_filter, facet_fields, filter_fields


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
