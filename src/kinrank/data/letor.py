"""LETOR files: svmlight lines with ``qid:``, and the document id in the comment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.letor_kernel import document_span, measure, parse, texts_at
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike, atomic_writer, parse_ids, read_bytes
from kinrank.errors import DataError, FileFormatError

MAX_FEATURES = 1_000_000  # X is dense: a larger index is a broken line, not a feature
_EXAMPLE = "'2 qid:10 1:0.5 2:0.25 #docid = A'"
_ROUNDS_TO_INFINITY = 2.0**128 - 2.0**103  # half a step above the largest float32
_ROWS_PER_WRITE = 10_000


def read_letor(path: PathLike, *, n_features: int | None = None) -> QuerySet:
    r"""Read judged queries from a LETOR (svmlight) file.

    A line is ``grade qid:query index:value ... #docid = document``. Indices start at 1 and ascend; a feature that is
    not on the line is 0, and ``nan`` is a missing value. Blank lines and comment lines are skipped. The rows of a query
    may be anywhere in the file.

    Query ids are whole numbers if all are written as such, else text. Document ids are text: the word after
    ``docid =``, else the first word of the comment, else empty. If no line has a comment, ``doc_id`` is None.

    Parameters
    ----------
    path
        The file. ``.gz`` and ``.xz`` files are decompressed.
    n_features
        The number of features; by default, the largest index of the file. Set it to read the parts of one collection,
        because a part may lack the last features.

    Raises
    ------
    FileFormatError
        If a line cannot be read. The message names the file, the line and the query.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.txt"
    >>> _ = path.write_text("2 qid:10 1:0.5 2:0.25 #docid = A\n0 qid:10 2:1 #docid = B\n")
    >>> queries = read_letor(path)
    >>> queries.qid.tolist(), queries.doc_id.tolist(), queries.X.tolist()
    ([10], ['A', 'B'], [[0.5, 0.25], [0.0, 1.0]])
    """
    raw = read_bytes(path)
    text = np.frombuffer(raw, dtype=np.uint8)
    n_rows, largest = measure(text)
    if n_rows == 0:
        raise FileFormatError(path, 0, f"the file has no rows, expected lines such as {_EXAMPLE}: check the path")
    rows = _Rows(n_rows, min(largest, MAX_FEATURES) if n_features is None else n_features)
    at, n_read = 0, 0
    while True:
        at, n_read = parse(text, at, n_read, rows.X, rows.y, rows.qid_spans, rows.doc_spans)
        if at >= len(text):
            break
        at = _read_line(path, raw, at, rows, n_read)
        n_read += 1
    try:
        return rows.query_set(text)
    except UnicodeDecodeError as error:
        raise FileFormatError(path, 0, f"an id is not UTF-8 ({error}): convert the file to UTF-8") from error


def write_letor(queries: QuerySet, path: PathLike) -> None:
    """Write judged queries to a LETOR (svmlight) file that `read_letor` reads back exactly.

    Zeros are written too. The format has no feature names and no query columns.

    Parameters
    ----------
    queries
        Judged queries. Ids must not contain whitespace, nor query ids ``#``.
    path
        The file, replaced if it exists. ``.gz`` and ``.xz`` files are compressed.
    """
    grades = queries.grades
    qid = queries.qid.astype(np.str_)
    _check_no_whitespace("query", qid, also="#")
    documents = None if queries.doc_id is None else queries.doc_id.astype(np.str_)
    if documents is not None:
        _check_no_whitespace("document", documents)
    query_of_row = queries.query_of_row
    with atomic_writer(path) as stream:
        for start in range(0, queries.n_rows, _ROWS_PER_WRITE):
            rows = slice(start, start + _ROWS_PER_WRITE)
            lines = [
                " ".join((grade, f"qid:{query}", *(f"{i}:{value}" for i, value in enumerate(values, 1))))
                for grade, query, values in zip(
                    _shortest(grades[rows]), qid[query_of_row[rows]], _shortest(queries.X[rows]), strict=True
                )
            ]
            if documents is not None:
                ids = documents[rows].tolist()
                lines = [f"{line} #docid = {doc}" if doc else line for line, doc in zip(lines, ids, strict=True)]
            stream.write(("\n".join(lines) + "\n").encode())


class _Rows:
    """The rows read so far, in file order."""

    def __init__(self, n_rows: int, n_features: int) -> None:
        self.X = np.zeros((n_rows, n_features), dtype=np.float32)
        self.y = np.zeros(n_rows, dtype=np.float32)
        self.qid_spans = np.zeros((n_rows, 2), dtype=np.int64)
        self.doc_spans = np.zeros((n_rows, 2), dtype=np.int64)

    def query_set(self, text: NDArray[np.uint8]) -> QuerySet:
        documents = texts_at(text, self.doc_spans) if self.doc_spans.any() else None
        queries = QuerySet.from_arrays(self.X, self.y, qid=texts_at(text, self.qid_spans), doc_id=documents)
        return queries.replace(qid=parse_ids(queries.qid))


def _read_line(path: PathLike, raw: bytes, at: int, rows: _Rows, row: int) -> int:
    """Read the line at `at` into a row, or raise; return the start of the next line.

    Called for lines that the kernel does not read: ``inf``, numbers of extreme size or length, and invalid lines.
    """
    end = raw.find(b"\n", at)
    line = raw[at : end if end >= 0 else len(raw)]
    features, _, _ = line.partition(b"#")
    words = [word.decode("utf-8", "replace") for word in features.split()]

    def fail(problem: str) -> FileFormatError:
        return FileFormatError(path, raw.count(b"\n", 0, at) + 1, problem)

    if len(words) < 2 or not words[1].startswith("qid:") or words[1] == "qid:":
        word = words[1] if len(words) > 1 else "the end of the line"
        raise fail(f"expected qid:<query> after the grade, found {word!r}: write lines such as {_EXAMPLE}")
    query = words[1].removeprefix("qid:")
    grade = _float32(words[0])
    if grade is None or not math.isfinite(grade):
        raise fail(
            f"query {query}: expected a grade (a number) first, found {words[0]!r}: drop rows that are not judged"
        )
    last = 0
    for word in words[2:]:
        index, colon, number = word.partition(":")
        if not colon or not (index.isascii() and index.isdigit()):
            raise fail(f"query {query}: expected index:value, found {word!r}: put comments after a #")
        feature = int(index)
        if feature == 0:
            raise fail(f"query {query}: feature 0 in {word!r}, but indices start at 1: add 1 to every index")
        if feature <= last:
            raise fail(f"query {query}: feature {feature} after feature {last}, but indices must ascend: sort the line")
        if feature > rows.X.shape[1]:
            most = rows.X.shape[1]
            raise fail(
                f"query {query}: feature {feature}, expected at most {most}: increase n_features or fix the line"
            )
        value = _float32(number)
        if value is None:
            raise fail(
                f"query {query}: feature {feature} is {number!r}, expected a number in the range of float32: "
                "write nan for a missing value"
            )
        rows.X[row, feature - 1] = value
        last = feature
    rows.y[row] = grade
    begin = at + line.index(b"qid:") + len("qid:")
    rows.qid_spans[row] = begin, begin + len(features.split()[1]) - len("qid:")
    if len(features) < len(line):
        rows.doc_spans[row] = document_span(np.frombuffer(raw, dtype=np.uint8), at + len(features))
    return at + len(line) + 1


def _float32(word: str) -> float | None:
    """Return the number that a word represents, or None if it is not a number or too large for float32."""
    try:
        number = float(word)
    except ValueError:
        return None
    return None if _ROUNDS_TO_INFINITY <= abs(number) < math.inf else number


def _shortest(values: Float32) -> Any:
    """Return numbers as the shortest text that float32 reads back exactly, with the fast formatter of Arrow."""
    texts = np.array(pa.array(np.ravel(values)).cast(pa.string()).to_pylist(), dtype=object)
    return texts.reshape(values.shape).tolist()


def _check_no_whitespace(what: str, ids: NDArray[np.str_], also: str = "") -> None:
    for name in ids.tolist():
        if any(c.isspace() or c in also for c in name):
            raise DataError(
                f"{what} id {name!r} cannot be written to a LETOR file: remove whitespace{' and #' * bool(also)}"
            )
