"""The Movie Search Ranking Dataset (MSRD): as published, and the samples that come with kinrank."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinrank.datasets.download import RemoteFile, get_data_home, require_file

if TYPE_CHECKING:
    import pyarrow as pa


from importlib.resources import as_file, files

from kinrank.data.queryset import QuerySet

FOLDER = "text/msrd"
# The original repository (metarank/msrd) keeps its files in Git LFS; Elastic's copy is plain files at a fixed commit.
_SOURCE = (
    "https://raw.githubusercontent.com/elastic/elasticsearch-labs/77567655e8343607538e2ef203b4c0b322526d93/"
    "notebooks/search/sample_data/learning-to-rank"
)
CORPUS = RemoteFile(
    "movies-corpus.jsonl.gz",
    [f"{_SOURCE}/movies-corpus.jsonl.gz"],
    "sha256:e7dbd5a64fd4ec15d9224795eda8d833fa12da871620ea661a36cca6eefabb00",
)
JUDGMENTS = RemoteFile(
    "movies-judgments.tsv.gz",
    [f"{_SOURCE}/movies-judgments.tsv.gz"],
    "sha256:38f64a511f48192fb2eeea02b54ca0420876a611072e57c1ab773adddc84ce3e",
)


@dataclass(frozen=True, eq=False)
class MovieSearch:
    """A corpus of movies and judged queries."""

    movies: pa.Table
    """One row per movie: id, title, overview, tags, genres, director, actors, characters, year, votes, rating,
    popularity, budget, url.
    """
    judgments: pa.Table
    """One row per judgment: qid, query (its text), doc_id, y (0 or 1)."""


def fetch_msrd(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
) -> MovieSearch:
    """Return the Movie Search Ranking Dataset: 9,750 movies and 384,381 judgments of 16,279 queries.

    It is downloaded on first use (6 MB) and licensed under CC BY-SA 4.0, by Metarank Labs
    (https://github.com/metarank/msrd). Judgments of movies that are not in the corpus are left out.
    ``examples/movies/features.py`` computes the 20 features that the benchmarks use.

    Parameters
    ----------
    data_home
        Folder of downloaded data sets, see `get_data_home`.
    download_if_missing
        Whether to download missing files. If not, they raise `kinrank.errors.DownloadError`.
    n_retries, delay
        How often to repeat a failed download, and the seconds before the first retry.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from kinrank.data.delimited import read_delimited
    from kinrank.data.files import open_bytes

    folder = get_data_home(data_home) / FOLDER
    corpus, judged = (
        require_file(file, folder, download_if_missing=download_if_missing, n_retries=n_retries, delay=delay)
        for file in (CORPUS, JUDGMENTS)
    )
    with open_bytes(corpus, "rb") as lines:
        movies = pa.Table.from_pylist([json.loads(line) for line in lines])
    table = read_delimited(judged, as_text=("query", "doc_id"))
    table = table.filter(pc.is_in(table["doc_id"], value_set=movies["id"].combine_chunks()))
    qid = pc.replace_substring(table["query_id"], "qid:", "")
    columns = {"qid": qid, "query": table["query"], "doc_id": table["doc_id"], "y": table["grade"]}
    return MovieSearch(movies, pa.table(columns))


def load_movies() -> QuerySet:
    """Return 300 judged queries of a movie search with 20 features: BM25 of each field, coverage, cosine, popularity.

    They are a sample of the Movie Search Ranking Dataset (MSRD, CC BY-SA 4.0): all queries about 71 movies. Query
    columns: ``text``, and ``movie``, a group for splits, since many queries are about the same movie. Movies
    have titles.

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
