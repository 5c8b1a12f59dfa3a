"""TREC files: judgments (qrels) and ranked lists (runs).

Ids of a run and of a QuerySet are compared as text: query 301 of a file equals query "301" of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.data.files import PathLike, atomic_writer, parse_ids, read_bytes
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, FileFormatError

QRELS_LINE = "query 0 document grade"
RUN_LINE = "query Q0 document rank score tag"
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, eq=False)
class Qrels:
    """Judgments, one per element of the arrays."""

    qid: NDArray[Any]
    """Query ids: whole numbers if all are written as such, else text."""
    doc_id: NDArray[np.str_]
    """Document ids."""
    grade: NDArray[np.int64]
    """Grades as in the file; some collections use negative ones."""

    def __len__(self) -> int:
        return len(self.qid)


@dataclass(frozen=True, eq=False)
class Run:
    """A ranking of documents, one per element of the arrays."""

    qid: NDArray[Any]
    """Query ids: whole numbers if all are written as such, else text."""
    doc_id: NDArray[np.str_]
    """Document ids."""
    score: NDArray[np.float64]
    """Higher is better."""
    rank: NDArray[np.int64]
    """Rank from 1, or as in the file. Most tools ignore it and sort by score."""
    tag: str = "kinrank"
    """The name of the run."""

    def __len__(self) -> int:
        return len(self.qid)


def read_qrels(path: PathLike) -> Qrels:
    """Read judgments. ``.gz`` and ``.xz`` files are decompressed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.qrels"
    >>> write_qrels(Qrels(np.array([301]), np.array(["FT911-3"]), np.array([1])), path)
    >>> read_qrels(path)
    Qrels(qid=array([301]), doc_id=array(['FT911-3'], dtype='<U7'), grade=array([1]))
    """
    rows = [
        (query, doc, _parse(int, grade, "a grade (a whole number)", path, line))
        for line, (query, _, doc, grade) in _lines(path, QRELS_LINE)
    ]
    queries, docs, grades = zip(*rows, strict=True)
    return Qrels(parse_ids(np.array(queries)), np.array(docs), np.array(grades, dtype=np.int64))


def write_qrels(qrels: Qrels, path: PathLike) -> None:
    """Write judgments. ``.gz`` and ``.xz`` files are compressed."""
    columns = (qrels.qid.tolist(), qrels.doc_id.tolist(), qrels.grade.tolist())
    _write(path, (f"{query} 0 {doc} {grade}" for query, doc, grade in zip(*columns, strict=True)), QRELS_LINE)


def read_run(path: PathLike) -> Run:
    """Read a run, with the tag of its first line. ``.gz`` and ``.xz`` files are decompressed."""
    tag, rows = "", []
    for line, (query, _, doc, rank, score, name) in _lines(path, RUN_LINE):
        tag = tag or name
        rows.append(
            (
                query,
                doc,
                _parse(_number, score, "a score (a number)", path, line),
                _parse(int, rank, "a rank (a whole number)", path, line),
            )
        )
    queries, docs, scores, ranks = zip(*rows, strict=True)
    return Run(parse_ids(np.array(queries)), np.array(docs), np.array(scores), np.array(ranks, dtype=np.int64), tag=tag)


def write_run(run: Run, path: PathLike) -> None:
    """Write a run, with scores at full precision. ``.gz`` and ``.xz`` files are compressed."""
    columns = (run.qid.tolist(), run.doc_id.tolist(), run.rank.tolist(), run.score.tolist())
    lines = (f"{query} Q0 {doc} {rank} {score!r} {run.tag}" for query, doc, rank, score in zip(*columns, strict=True))
    _write(path, lines, RUN_LINE)


def qrels_from_queries(queries: QuerySet) -> Qrels:
    """Return the judgments of all judged rows, which must have whole grades and document ids.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], y=[2, np.nan], qid=[7, 7], doc_id=["a", "b"])
    >>> qrels_from_queries(queries).doc_id.tolist()
    ['a']
    """
    rows = np.flatnonzero(queries.judged)
    grades = queries.grades[rows]
    fractions = grades != np.round(grades)
    if fractions.any():
        raise DataError(f"grade {grades[np.argmax(fractions)]} is no whole number, which qrels need: round the grades")
    return Qrels(queries.qid[queries.query_of_row[rows]], _documents(queries)[rows], grades.astype(np.int64))


def run_from_scores(queries: QuerySet, scores: ArrayLike, tag: str = "kinrank") -> Run:
    """Return the run that ranks the documents of each query by descending score, ties in row order.

    Parameters
    ----------
    queries
        Queries with document ids.
    scores
        One score per row of `queries`.
    tag
        The name of the run, without whitespace.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], qid=[7, 7], doc_id=["a", "b"])
    >>> run_from_scores(queries, [0.1, 0.9]).doc_id.tolist()
    ['b', 'a']
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (queries.n_rows,):
        raise DataError(f"scores must have one value per row ({queries.n_rows}), got shape {values.shape}")
    if np.isnan(values).any():
        raise DataError(f"scores[{int(np.argmax(np.isnan(values)))}] is nan, which cannot be ranked: replace it")
    order = np.lexsort((-values, queries.query_of_row))
    return Run(
        qid=queries.qid[queries.query_of_row],
        doc_id=_documents(queries)[order],
        score=values[order],
        rank=np.arange(queries.n_rows) - np.repeat(queries.offsets[:-1], queries.sizes) + 1,
        tag=tag,
    )


def scores_from_run(queries: QuerySet, run: Run, *, absent: float = -np.inf) -> NDArray[np.float64]:
    """Return the score of each row of `queries` in a run.

    Documents of the run that are not in `queries` are ignored.

    Parameters
    ----------
    queries
        Queries with document ids.
    run
        The run.
    absent
        The score of documents that are not in the run. Minus infinity ranks them last; ``numpy.nan`` marks them.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], qid=[7, 7], doc_id=["a", "b"])
    >>> run = Run(np.array([7]), np.array(["b"]), np.array([2.5]), np.array([1]))
    >>> scores_from_run(queries, run).tolist()
    [-inf, 2.5]
    """
    documents = _documents(queries).tolist()
    score_of: dict[tuple[str, str], float] = {}
    run_keys = zip(run.qid.astype(np.str_).tolist(), run.doc_id.astype(np.str_).tolist(), strict=True)
    for key, score in zip(run_keys, run.score.tolist(), strict=True):
        if key in score_of:
            raise DataError(f"document {key[1]!r} occurs twice in the run for query {key[0]!r}: keep one of them")
        score_of[key] = score
    qid = queries.qid.astype(np.str_)[queries.query_of_row].tolist()
    keys = zip(qid, documents, strict=True)
    return np.array([score_of.get(key, absent) for key in keys], dtype=np.float64)


def _documents(queries: QuerySet) -> NDArray[np.str_]:
    if queries.doc_id is None:
        raise DataError("these queries have no document ids: pass doc_id=, one per row (in a file: column doc_id)")
    return queries.doc_id.astype(np.str_)


def _lines(path: PathLike, layout: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line that is not blank."""
    expected = len(layout.split())
    empty = True
    for number, line in enumerate(read_bytes(path).split(b"\n"), 1):
        words = line.decode("utf-8", "replace").split()
        if not words:
            continue
        if len(words) != expected:
            raise FileFormatError(
                path, number, f"expected {expected} words ({layout}), found {len(words)}: fix or remove the line"
            )
        empty = False
        yield number, words
    if empty:
        raise FileFormatError(path, 0, f"the file is empty, expected lines such as {layout!r}: check the path")


def _parse(kind: Callable[[str], Number], word: str, expected: str, path: PathLike, line: int) -> Number:
    try:
        return kind(word)
    except ValueError:
        raise FileFormatError(path, line, f"expected {expected}, found {word!r}: fix or remove the line") from None


def _number(word: str) -> float:
    number = float(word)
    if math.isnan(number):
        raise ValueError("nan cannot be ranked")
    return number


def _write(path: PathLike, lines: Iterable[str], layout: str) -> None:
    expected = len(layout.split())
    with atomic_writer(path) as stream:
        for line in lines:
            if len(line.split()) != expected:
                raise DataError(f"{line!r} cannot be read back as {layout!r}: remove whitespace from ids and tags")
            stream.write(line.encode() + b"\n")
