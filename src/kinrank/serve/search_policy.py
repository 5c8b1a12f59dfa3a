"""Which documents searches may find, and which of their fields callers may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kinrank.engines.features import Clause
from kinrank.engines.search_options import SearchOptions
from kinrank.errors import ForbiddenFieldError


@dataclass(frozen=True)
class SearchPolicy:
    """What searches may read.

    Examples
    --------
    >>> policy = SearchPolicy(["title", "price_*"], {"term": {"public": True}})
    >>> policy.check(SearchOptions(fields=["title", "price_eur"]))
    >>> policy.check(SearchOptions(fields=["*"]))
    Traceback (most recent call last):
    ...
    kinrank.errors.ForbiddenFieldError: the field '*' must not be read with this key: the service permits title, price_*
    """

    fields: Sequence[str] | None = None
    """Fields that callers may return, filter by and aggregate; ``*`` stands for any characters. None permits all.
    Callers with an admin key may read all fields in any case.
    """
    filter_clause: Clause | None = None
    """A filter that all documents must match, whatever a request asks for."""

    def check(self, options: SearchOptions) -> None:
        """Raise `ForbiddenFieldError` if a search reads a field that it must not."""
        if self.fields is None:
            return
        for name in sorted(options.read_fields()):
            if name not in self.fields and ("*" in name or not any(fnmatchcase(name, each) for each in self.fields)):
                permitted = ", ".join(self.fields) or "none; name some with --field"
                raise ForbiddenFieldError(
                    f"the field {name!r} must not be read with this key: the service permits {permitted}"
                )

    def restrict(self, options: SearchOptions) -> SearchOptions:
        """Return the options of a search among the documents that it may find."""
        return options.also_matching(self.filter_clause)
