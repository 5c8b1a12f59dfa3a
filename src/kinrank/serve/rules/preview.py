"""Which known queries a rule would be for, and how much of the traffic they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kinrank.data.texts import normalize_text
from kinrank.serve.database import Database
from kinrank.serve.rules.similarity import SimilarTexts

MOST_KNOWN = 20_000
"""Known queries that are compared with that of a rule: those that people asked most."""


@dataclass(frozen=True)
class TouchedQuery:
    """A known query that a rule would be for.

    Attributes
    ----------
    query : str
        Its text.
    similarity : float
        How alike it is to the query of the rule; 1 for the same.
    share : float, or None
        Its share of what people looked at in the counted days; None if nothing was counted.
    """

    query: str
    similarity: float
    share: float | None


@dataclass(frozen=True)
class Preview:
    """The known queries that a rule would be for.

    Attributes
    ----------
    queries : list of TouchedQuery
        The queries, those with most traffic first.
    share : float, or None
        Their share of what people looked at in the counted days; None if nothing was counted.
    known : int
        The number of known queries that were compared.
    """

    queries: list[TouchedQuery]
    share: float | None
    known: int


def preview(database: Database, query: str, *, also_similar: bool, others: Iterable[str] = ()) -> Preview:
    """Return the known queries that a rule for a query would be for.

    Known are the queries that enough people asked, whose texts are in the database.

    Parameters
    ----------
    database
        The database of the service.
    query
        The query of the rule.
    also_similar
        Whether the rule is also for queries like it.
    others
        Texts of further known queries.
    """
    with database.reading() as execute:
        rows = execute(
            "SELECT min(t.text), sum(coalesce(c.looks, 0)) AS looks FROM kinrank_texts AS t LEFT JOIN kinrank_counts "
            "AS c ON c.model = t.model AND c.query = t.query GROUP BY t.query ORDER BY looks DESC LIMIT ?",
            (MOST_KNOWN,),
        )
        [(total,)] = execute("SELECT sum(looks) FROM kinrank_counts", ())
    looks_of = {normalize_text(text): float(looks) for text, looks in rows}
    texts = list({normalize_text(text): text for text in (*others, *(row[0] for row in rows))}.values())
    key = normalize_text(query)
    found = SimilarTexts(texts).like(query) if also_similar else {}
    alike = {text: found.get(place, 0.0) for place, text in enumerate(texts)}
    touched = [
        TouchedQuery(text, 1.0 if normalize_text(text) == key else alike[text], _share(looks_of, text, total))
        for text in texts
        if alike[text] or normalize_text(text) == key
    ]
    touched.sort(key=lambda each: (-(each.share or 0.0), -each.similarity, each.query))
    share = min(sum(each.share or 0.0 for each in touched), 1.0) if total else None
    return Preview(touched, share, len(texts))


def _share(looks_of: dict[str, float], text: str, total: float | None) -> float | None:
    # Both are sums of the same numbers in another order.
    return min(looks_of.get(normalize_text(text), 0.0) / total, 1.0) if total else None
