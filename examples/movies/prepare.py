"""Convert the Movie Search Ranking Dataset (MSRD) to the files of the tutorial.

    python examples/movies/prepare.py MSRD [--queries N]

MSRD is the folder of the dataset: movies-corpus.jsonl.gz, movies-judgments.tsv.gz, vectors of movies and queries, and
the split by movie. The script writes into the current folder:

movies.jsonl                    id, text, numbers and embedding of each movie
train.tsv, vali.tsv, test.tsv   qid, query, doc_id, y
vectors.parquet                 qid, vector

With --queries, only N queries are used, in the proportions of the split, and only the movies judged for them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTS = ("train", "vali", "test")
TEXT = ("title", "overview", "tags", "genres", "director", "actors", "characters")
NUMBERS = ("year", "votes", "rating", "popularity", "budget")


def prepare(msrd: Path, out: Path, n_queries: int | None = None) -> None:
    """Write the files of the tutorial."""
    split = np.load(msrd / "features20.npz")
    part_of = dict(zip(split["qid"].tolist(), split["split"].tolist(), strict=True))
    if n_queries is not None:
        share = n_queries / len(part_of)
        rows_of_part = [np.flatnonzero(split["split"] == part) for part in PARTS]
        kept = np.concatenate([rows[: max(1, round(share * len(rows)))] for rows in rows_of_part])
        part_of = {qid: part_of[qid] for qid in split["qid"][kept].tolist()}
    judged = write_judgments(msrd, out, part_of)
    write_movies(msrd, out, None if n_queries is None else judged)
    write_vectors(msrd, out, part_of)


def write_judgments(msrd: Path, out: Path, part_of: dict[str, str]) -> set[str]:
    """Write a table of judgments for each part of the split, and return the judged movies."""
    movies: set[str] = set()
    rows: dict[str, list[list[str]]] = {part: [] for part in PARTS}
    with gzip.open(msrd / "movies-judgments.tsv.gz", "rt") as lines:
        next(lines)
        for line in lines:
            qid, query, doc_id, grade = line.rstrip("\n").split("\t")
            qid = qid.removeprefix("qid:")
            if qid in part_of:
                rows[part_of[qid]].append([qid, query, doc_id, grade])
                movies.add(doc_id)
    for part in PARTS:
        with (out / f"{part}.tsv").open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
            writer.writerows([["qid", "query", "doc_id", "y"], *rows[part]])
    return movies


def write_movies(msrd: Path, out: Path, wanted: set[str] | None) -> None:
    """Write each movie as a line of JSON."""
    vectors = np.load(msrd / "doc_vectors.f16.npy", mmap_mode="r")
    with gzip.open(msrd / "movies-corpus.jsonl.gz", "rt") as lines, (out / "movies.jsonl").open("w") as file:
        for line, vector in zip(lines, vectors, strict=True):
            movie = json.loads(line)
            if wanted is None or movie["id"] in wanted:
                fields = {name: movie[name] for name in (*TEXT, *NUMBERS) if movie.get(name) is not None}
                embedding = [round(x, 4) for x in vector.astype(float).tolist()]
                file.write(json.dumps({"id": movie["id"], **fields, "embedding": embedding}) + "\n")


def write_vectors(msrd: Path, out: Path, part_of: dict[str, str]) -> None:
    """Write the embedding of each query."""
    ids = (msrd / "query_vectors.ids.txt").read_text().split()
    vectors = np.load(msrd / "query_vectors.f16.npy", mmap_mode="r")
    rows = [row for row, qid in enumerate(ids) if qid in part_of]
    table = {"qid": [ids[row] for row in rows], "vector": vectors[rows].astype(np.float32).tolist()}
    pq.write_table(
        pa.table(table, schema=pa.schema({"qid": pa.string(), "vector": pa.list_(pa.float32())})),
        out / "vectors.parquet",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("msrd", type=Path, help="folder of the dataset")
    parser.add_argument("--queries", type=int, metavar="N", help="number of queries to use")
    arguments = parser.parse_args()
    prepare(arguments.msrd, Path(), arguments.queries)
