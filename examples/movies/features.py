"""Compute the 20 features of the Movie Search Ranking Dataset (MSRD) that the benchmarks use.

    python examples/movies/features.py [--data FOLDER]

Downloads the dataset (`kinrank.datasets.fetch_msrd`) into the data home and writes next to it, in ``text/msrd``:

doc_vectors.f16.npy, query_vectors.f16.npy, query_vectors.ids.txt   embeddings, with sentence-transformers
features20.npz   X, y, offsets, qid, doc_id, names, query_words, movie (the group), split

Needs ``pip install snowballstemmer sentence-transformers``. Embeddings that are there already are used as they are.

bm25_FIELD, bm25_all    BM25 (k1 = 0.9, b = 0.4, Lucene's idf) of English stems without stop words; of the seven text
                        fields, and of all of them with the year
cover_FIELD             share of the query's distinct stems in the field; cover_title_reverse: the other way around
cosine                  cosine of query and "title. overview" (all-MiniLM-L6-v2)
year, log_votes, rating, log_popularity, log_budget, title_words
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import snowballstemmer

from kinrank.datasets import fetch_msrd, get_data_home

FIELDS = ("title", "overview", "tags", "genres", "director", "actors", "characters")
COVERED = ("overview", "actors", "characters")
K1, B = 0.9, 0.4
STOP_WORDS = frozenset(  # of Lucene's analyzer for English
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    ]
)
NAMES = (
    *(f"bm25_{field}" for field in (*FIELDS, "all")),
    *("cover_title", "cover_title_reverse", *(f"cover_{field}" for field in COVERED)),
    *("cosine", "year", "log_votes", "rating", "log_popularity", "log_budget", "title_words"),
)
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SPLIT = Path(__file__).with_name("split.json")
_STEMMER = snowballstemmer.stemmer("english")


def stems(text: str) -> list[str]:
    """Return the stems of the words of two or more characters that are no stop words."""
    return [_stem(word) for word in re.findall(r"\b\w\w+\b", text.lower()) if word not in STOP_WORDS]


@cache
def _stem(word: str) -> str:
    return str(_STEMMER.stemWord(word))


class BM25:
    """BM25 scores of one field."""

    def __init__(self, documents: Sequence[list[str]]) -> None:
        self.counts = [Counter(words) for words in documents]
        lengths = np.array([len(words) for words in documents])
        self.norm = K1 * (1 - B + B * lengths / (lengths.mean() or 1.0))
        frequency = Counter(word for counts in self.counts for word in counts)
        n = len(documents)
        self.idf = {word: np.log(1 + (n - count + 0.5) / (count + 0.5)) for word, count in frequency.items()}

    def score(self, query: list[str], document: int) -> float:
        """Return the score of a document."""
        counts = self.counts[document]
        return sum(
            self.idf[word] * counts[word] / (counts[word] + self.norm[document]) for word in query if word in counts
        )


class Features:
    """The features of any query and movie, apart from the cosine."""

    def __init__(self, movies: list[dict[str, Any]]) -> None:
        fields = {field: [stems(_text(movie[field])) for movie in movies] for field in FIELDS}
        everything = zip(*fields.values(), (stems(str(movie["year"])) for movie in movies), strict=True)
        self.bm25 = [BM25(documents) for documents in fields.values()]
        self.bm25.append(BM25([[word for part in parts for word in part] for parts in everything]))
        self.stems = {field: [frozenset(words) for words in fields[field]] for field in ("title", *COVERED)}
        self.numbers = np.array([_numbers(movie) for movie in movies])

    def of(self, query: list[str], movie: int, cosine: float) -> list[float]:
        """Return the features of a query, as stems, and a movie, in the order of `NAMES`."""
        words, title = frozenset(query), self.stems["title"][movie]
        covers = [_share(words, title), _share(title, words)]
        covers += [_share(words, self.stems[field][movie]) for field in COVERED]
        return [*(field.score(query, movie) for field in self.bm25), *covers, cosine, *self.numbers[movie]]


def _text(value: str | list[str] | None) -> str:
    return " ".join(value) if isinstance(value, list) else value or ""


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / max(len(words), 1)


def _numbers(movie: dict[str, Any]) -> list[float]:
    votes, popularity, budget = (np.log1p(movie[name] or 0) for name in ("votes", "popularity", "budget"))
    return [movie["year"] or 0, votes, movie["rating"] or 0, popularity, budget, len(movie["title"].split())]


def vectors(file: Path, texts: list[str]) -> np.ndarray:
    """Return the embeddings of texts, from the file if it is there."""
    if not file.is_file():
        from sentence_transformers import SentenceTransformer  # only if there is something to encode

        encoded = SentenceTransformer(MODEL).encode(texts, normalize_embeddings=True, show_progress_bar=True)
        np.save(file, encoded.astype(np.float16))
    return np.load(file).astype(np.float32)


def compute(data_home: Path, n_queries: int | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of features20.npz, for the first queries only if `n_queries` is given."""
    found, folder = fetch_msrd(data_home=data_home), data_home / "text" / "msrd"
    movies, judgments = found.movies.to_pylist(), found.judgments.to_pandas()
    place = {movie["id"]: position for position, movie in enumerate(movies)}
    queries = judgments.drop_duplicates("qid")
    query_vectors = vectors(folder / "query_vectors.f16.npy", queries["query"].tolist())
    documents = [f"{movie['title']}. {movie['overview']}" for movie in movies]
    movie_vectors = vectors(folder / "doc_vectors.f16.npy", documents)
    if not (folder / "query_vectors.ids.txt").is_file():
        (folder / "query_vectors.ids.txt").write_text("\n".join(queries["qid"]) + "\n")
    features, part_of = Features(movies), _parts()
    rows, groups = [], []
    chosen = queries["qid"][:n_queries]
    for number, (_, judged) in enumerate(judgments[judgments["qid"].isin(chosen)].groupby("qid", sort=False)):
        query, near = stems(judged["query"].iloc[0]), movie_vectors @ query_vectors[number]
        rows += [features.of(query, place[movie], near[place[movie]]) for movie in judged["doc_id"]]
        groups.append(judged)
    relevant = [judged["doc_id"][judged["y"] > 0].iloc[0] for judged in groups]
    return {
        "X": np.array(rows, dtype=np.float32),
        "y": np.concatenate([judged["y"] for judged in groups]).astype(np.int8),
        "offsets": np.append(0, np.cumsum([len(judged) for judged in groups])),
        "qid": np.array([judged["qid"].iloc[0] for judged in groups]),
        "doc_id": np.concatenate([judged["doc_id"] for judged in groups]).astype(str),
        "names": np.array(NAMES),
        "query_words": np.array([len(judged["query"].iloc[0].split()) for judged in groups], dtype=np.int16),
        "movie": np.array(relevant),
        "split": np.array([part_of.get(movie, "train") for movie in relevant]),
    }


def _parts() -> dict[str, str]:
    """Return the part of each movie that is not for training: queries are split by their first relevant movie."""
    return {movie: part for part, movies in json.loads(SPLIT.read_text()).items() for movie in movies}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="data home, by default KINRANK_DATA or ~/kinrank_data")
    home = get_data_home(parser.parse_args().data)
    np.savez_compressed(home / "text" / "msrd" / "features20.npz", **compute(home))
