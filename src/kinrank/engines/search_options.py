"""What a search must match and return, besides the text of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kinrank.engines.facets import check_facets
from kinrank.engines.features import Clause
from kinrank.engines.filters import check_filter


@dataclass(frozen=True)
class SearchOptions:
    """What documents must match, and what is returned with them.

    Attributes
    ----------
    filter_clause : mapping, optional
        Clause of the engine's query language that documents must match. It changes no score.
    fields : sequence of str
        Fields of the documents to return; ``*`` stands for any characters.
    facets : mapping of str to mapping
        Aggregations of the engine's query language over all documents that match, by name.

    Examples
    --------
    >>> SearchOptions({"term": {"genres": "drama"}}, facets={"years": {"stats": {"field": "year"}}}).check()
    """

    filter_clause: Clause | None = None
    fields: Sequence[str] = ()
    facets: Mapping[str, Clause] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `ParameterError` if the filter or a facet is not allowed."""
        if self.filter_clause is not None:
            check_filter(self.filter_clause)
        check_facets(self.facets)


PLAIN = SearchOptions()
"""Documents by id only, not filtered."""
