"""The movies of the demo, a small search engine over them, and what the demo shows of a search."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.rankers.kin.explanation import KinExplanation


@dataclass(frozen=True)
class Movie:
    """A movie: what people see of it, and what the search reads."""

    id: str
    title: str
    overview: str
    genres: str
    director: str
    actors: str
    characters: str
    year: int
    votes: int
    rating: float
    popularity: float

    @property
    def label(self) -> str:
        """The title with the year."""
        return f"{self.title} ({self.year})"


@dataclass(frozen=True)
class Judged:
    """A judged query: its text, the relevant movies, and whether the demo's models have learned from it."""

    query: str
    movies: list[str]
    learned: bool


TEXT_FIELDS = ("title", "overview", "genres", "director", "actors", "characters")


def load_demo_movies() -> list[Movie]:
    """Return the bundled movies, most voted first (MSRD, CC BY-SA 4.0; see ``data/README.md``).

    Examples
    --------
    >>> len(load_demo_movies())
    2500
    """
    return [Movie(**row) for row in _rows("movies.parquet")]


def load_demo_judgments() -> list[Judged]:
    """Return the judged queries of the bundled movies (MSRD, CC BY-SA 4.0).

    Examples
    --------
    >>> sum(judged.learned for judged in load_demo_judgments())
    1800
    """
    return [Judged(**row) for row in _rows("judged.parquet")]


def _rows(name: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(data_file(name)).to_pylist()
    return rows


def data_file(name: str) -> Path:
    """Return the path of a bundled file or folder. The package is always installed as files."""
    return Path(str(files("kinrank.demo") / "data" / name))


HITS = 50
BOOSTS = {"title": 4.0, "overview": 1.0, "genres": 1.0, "director": 2.0, "actors": 2.0, "characters": 1.0}
"""Hand-tuned boosts of the fields, as search teams have them: they give the engine's order."""
FEATURES = (
    *(f"bm25_{field}" for field in TEXT_FIELDS),
    *("engine_score", "title_in_query", "query_in_title", "same_year", "year"),
    *("log_votes", "rating", "log_popularity", "title_words"),
)
_STOP_WORDS = frozenset("a an and at by for from in is it of on or the to with".split())  # noqa: SIM905
_WORD = re.compile(r"\w+")


class MovieSearch:
    """Searches movies by BM25 of their text fields.

    Examples
    --------
    >>> movie = Movie("1", "Alien", "A crew in space.", "Horror", "Ridley Scott", "", "", 1979, 100, 8.1, 50.0)
    >>> hits = MovieSearch([movie]).hits("alien 1979")
    >>> hits.doc_id.tolist(), hits.X[:, FEATURES.index("same_year")].tolist()
    (['1'], [1.0])
    """

    def __init__(self, movies: Sequence[Movie]) -> None:
        self.movies = {movie.id: movie for movie in movies}
        self._by_row = list(movies)
        self._titles = [set(words(movie.title)) for movie in movies]
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            f"CREATE VIRTUAL TABLE movies USING fts5({', '.join(TEXT_FIELDS)}, tokenize='porter unicode61')"
        )
        rows = [[row, *(getattr(movie, field) for field in TEXT_FIELDS)] for row, movie in enumerate(movies)]
        places = ", ".join("?" * (len(TEXT_FIELDS) + 1))
        self._database.executemany(f"INSERT INTO movies (rowid, {', '.join(TEXT_FIELDS)}) VALUES ({places})", rows)
        by_field = ", ".join(
            f"-bm25(movies, {', '.join(str(float(each == field)) for each in TEXT_FIELDS)})" for field in TEXT_FIELDS
        )
        boosts = ", ".join(str(BOOSTS[field]) for field in TEXT_FIELDS)
        self._statement = (
            f"SELECT rowid, {by_field}, -bm25(movies, {boosts}) AS score FROM movies "
            f"WHERE movies MATCH ? ORDER BY score DESC, rowid LIMIT {HITS}"
        )

    def hits(self, text: str, qid: str | None = None) -> QuerySet | None:
        """Return the best hits of a query in the engine's order, with their features; None without a hit."""
        found = self._found(text)
        if not found:
            return None
        X = np.array([self._features(text, row, scores) for row, *scores in found], dtype=np.float32)
        ids = [self._by_row[row].id for row, *_ in found]
        return QuerySet.from_arrays(
            X,
            group=[len(found)],
            doc_id=np.array(ids, dtype=np.str_),
            feature_names=FEATURES,
            query_columns={"text": [text]},
        ).replace(qid=np.array([text if qid is None else qid]))

    def _found(self, text: str) -> list[tuple[int, *tuple[float, ...]]]:
        wanted = words(text)
        if not wanted:
            return []
        # Quoted, so that no word is taken for an operator of the query language.
        return self._database.execute(self._statement, [" OR ".join(f'"{word}"' for word in wanted)]).fetchall()

    def _features(self, text: str, row: int, scores: Sequence[float]) -> Float32:
        movie, title, wanted = self._by_row[row], self._titles[row], set(words(text))
        shared = len(title & wanted)
        features = (
            *scores,
            shared / max(len(title), 1),
            shared / max(len(wanted), 1),
            float(str(movie.year) in wanted),
            movie.year,
            np.log1p(movie.votes),
            movie.rating,
            np.log1p(movie.popularity),
            len(title),
        )
        return np.array(features, dtype=np.float32)


def words(text: str) -> list[str]:
    """Return the distinct lower-case words of a text without stop words, or all if there are no others.

    Examples
    --------
    >>> words("The Lord of the Rings"), words("It")
    (['lord', 'rings'], ['it'])
    """
    every = list(dict.fromkeys(_WORD.findall(text.lower())))
    return [word for word in every if word not in _STOP_WORDS] or every


SHOWN = 10


def order_by(scores: Float64) -> NDArray[np.int64]:
    """Return the rows of one query from best to worst; equal scores keep the engine's order."""
    return np.argsort(-scores, kind="stable")


def shown_hits(
    hits: QuerySet,
    scores: Float64,
    movies: Mapping[str, Movie],
    relevant: frozenset[str],
    reasons: Mapping[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the first hits of an order, as the page shows them."""
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
                "right": movie.id in relevant,
                "why": (reasons or {}).get(row, ""),
            }
        )
    return shown


def reasons_to_move(explained: KinExplanation) -> dict[int, str]:
    """Return in words why memory moved each row, and its rank without that; others have none unless chosen."""
    told = (explained.rank != explained.rank_without) | (explained.choices > 0)
    return {row: words for row in np.flatnonzero(told).tolist() if (words := explained.why(row))}
