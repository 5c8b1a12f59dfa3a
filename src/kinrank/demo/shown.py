"""What the demo shows of a search: the hits in three orders, the query's kin, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.demo.movies import Movie
from kinrank.rankers.choices.explanation import ChoiceExplanation

SHOWN = 10
_PHRASES = {
    "bm25_title": "title matches",
    "bm25_overview": "plot matches",
    "bm25_genres": "genre matches",
    "bm25_director": "director matches",
    "bm25_actors": "actor matches",
    "bm25_characters": "character matches",
    "engine_score": "matches in all fields",
    "title_in_query": "whole title in the query",
    "query_in_title": "whole query in the title",
    "same_year": "year in the query",
    "year": "release year",
    "log_votes": "number of votes",
    "rating": "rating",
    "log_popularity": "popularity",
    "title_words": "length of the title",
}
"""What each feature means to someone who searches."""


def order_by(scores: Float64) -> NDArray[np.int64]:
    """Return the rows of one query from best to worst; equal scores keep the engine's order."""
    return np.argsort(-scores, kind="stable")


def shown_hits(
    hits: QuerySet, scores: Float64, movies: Mapping[str, Movie], reasons: Mapping[int, str] | None = None
) -> list[dict[str, Any]]:
    """Return the first hits of an order, as the page shows them.

    Parameters
    ----------
    hits
        The hits of one query in the engine's order.
    scores
        The score of each.
    movies
        The movies by id.
    reasons
        Why a row stands where it does, if there is anything to say.
    """
    assert hits.doc_id is not None  # the search always gives ids
    shown = []
    for place, row in enumerate(order_by(scores)[:SHOWN].tolist()):
        movie = movies[hits.doc_id[row].item()]
        shown.append(
            {
                "id": movie.id,
                "title": movie.title,
                "year": movie.year,
                "about": movie.overview,
                "people": ", ".join(filter(None, [movie.director, *movie.actors.split(", ")[:2]])),
                "moved": row - place,
                "why": (reasons or {}).get(row, ""),
            }
        )
    return shown


def feature_reasons(hits: QuerySet, weights: Float64) -> dict[int, str]:
    """Return the two features that lift each row most above the query's average row, in words.

    Examples
    --------
    >>> hits = QuerySet.from_arrays([[3.0, 1.0], [1.0, 1.0]], group=[2], feature_names=["bm25_title", "rating"])
    >>> feature_reasons(hits, np.array([1.0, 1.0]))
    {0: 'title matches'}
    """
    effects = (hits.X - hits.X.mean(axis=0)) * weights
    least = 0.05 * float(np.abs(effects).max(initial=0.0))
    reasons = {}
    for row, effect in enumerate(effects):
        strongest = [feature for feature in np.argsort(-effect)[:2].tolist() if effect[feature] > least]
        if strongest:
            reasons[row] = ", ".join(_PHRASES[hits.feature_names[feature]] for feature in strongest)
    return reasons


def choice_reasons(explained: ChoiceExplanation) -> dict[int, str]:
    """Return what was chosen, for each row that was, and its rank without that."""
    return {
        row: f"chosen {explained.choices[row]:.0f}×; without that it would be no. {explained.rank_without[row]}"
        for row in np.flatnonzero(explained.choices > 0).tolist()
    }


def weights_in_words(names: Sequence[str], effects: Float64, usual: Float64) -> str:
    """Return what counts more and what counts less for this query than for all queries; empty if nothing stands out.

    Parameters
    ----------
    names
        The features.
    effects, usual
        The weights of this query and those of all queries, on one scale.

    Examples
    --------
    >>> weights_in_words(["bm25_title", "rating"], np.array([2.0, 0.0]), np.ones(2))
    'For this query title matches count more than usual, rating counts less.'
    """
    difference = effects - usual
    least = 0.1 * float(np.abs(usual).max(initial=0.0))
    more, less = int(np.argmax(difference)), int(np.argmin(difference))
    parts = []
    if difference[more] > least:
        parts.append(f"{_counts(names[more])} more than usual")
    if difference[less] < -least:
        parts.append(f"{_counts(names[less])} less" + ("" if parts else " than usual"))
    return f"For this query {', '.join(parts)}." if parts else ""


def _counts(name: str) -> str:
    phrase = _PHRASES[name]
    return f"{phrase} count" if phrase.endswith(" matches") or phrase.startswith("matches") else f"{phrase} counts"
