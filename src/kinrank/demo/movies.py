"""The movies of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path


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


TEXT_FIELDS = ("title", "overview", "genres", "director", "actors", "characters")


def load_demo_movies() -> list[Movie]:
    """Return the bundled movies, most voted first (MSRD, CC BY-SA 4.0; see ``data/README.md``).

    Examples
    --------
    >>> len(load_demo_movies())
    2500
    """
    import pyarrow.parquet as pq

    with as_file(files("kinrank.demo") / "data" / "movies.parquet") as path:
        return [Movie(**row) for row in pq.read_table(path).to_pylist()]


def data_file(name: str) -> Path:
    """Return the path of a bundled file or folder. The package is always installed as files."""
    return Path(str(files("kinrank.demo") / "data" / name))
