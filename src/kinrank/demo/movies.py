"""The movies of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any


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
