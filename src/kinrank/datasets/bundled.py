"""Samples of real data that come with the package; ``samples/README.md`` has their sources and licenses."""

from __future__ import annotations

from importlib.resources import as_file, files

from kinrank.data.queryset import QuerySet


def load_movies() -> QuerySet:
    """Return 300 judged queries of a movie search with 20 features: BM25 of each field, coverage, cosine, popularity.

    They are a sample of the Movie Search Ranking Dataset (MSRD, CC BY-SA 4.0): all queries about 71 movies. Query
    columns: ``text``, and ``movie``, a group for splits, since many queries are about the same movie.

    Examples
    --------
    >>> movies = load_movies()
    >>> movies
    QuerySet(300 queries, 7,054 rows, 20 features, judged)
    >>> movies.query_columns["text"][2].item()
    'james bond casino royale'
    """
    return _load("movies")


def load_movie_scores() -> QuerySet:
    """Return 1,500 judged queries of a movie search with two scores per movie: BM25 and a cosine similarity.

    They are a sample of the Movie Search Ranking Dataset (MSRD, CC BY-SA 4.0). A movie that BM25 does not find has no
    score. Query columns: ``text``, and ``movie``, a group for splits, since many queries are about the same movie.

    Examples
    --------
    >>> load_movie_scores()
    QuerySet(1,500 queries, 35,451 rows, 2 features, judged)
    """
    return _load("movie_scores")


def _load(name: str) -> QuerySet:
    from kinrank.data.parquet import read_parquet  # imports Arrow, which generated data does not need

    with as_file(files("kinrank.datasets") / "samples" / f"{name}.parquet") as path:
        return read_parquet(path)
