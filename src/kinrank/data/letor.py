"""LETOR files: svmlight lines with ``qid:``, and the document id in the comment."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.files import PathLike, atomic_writer, parse_ids, read_bytes
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, FileFormatError

MAX_FEATURES = 1_000_000  # X is dense: a larger index is a broken line, not a feature
_EXAMPLE = "'2 qid:10 1:0.5 2:0.25 #docid = A'"
_ROUNDS_TO_INFINITY = 2.0**128 - 2.0**103  # half a step above the largest float32
_ROWS_PER_WRITE = 10_000
_LINES_AT_ONCE = 2_000
_LINE = re.compile(rb"[ \t\r]*([^\s#]+)[ \t\r]+qid:([^\s#]+)([^#]*)(?:#[ \t\r]*(?:docid[ \t\r]*=[ \t\r]*)?(\S*))?")


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
    rows = _Rows(path, raw.count(b"\n") + 1, n_features)
    lines = enumerate(_lines(raw), 1)
    while block := list(islice(lines, _LINES_AT_ONCE)):
        rows.read([(number, line) for number, line in block if line.partition(b"#")[0].strip()])
    if not rows.qids:
        raise FileFormatError(path, 0, f"the file has no rows, expected lines such as {_EXAMPLE}: check the path")
    return rows.query_set()


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


def _lines(raw: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start)
        end = len(raw) if end < 0 else end
        yield raw[start:end]
        start = end + 1


class _Rows:
    """The rows read so far, in file order."""

    def __init__(self, path: PathLike, most: int, n_features: int | None) -> None:
        self._path = path
        self._limit = MAX_FEATURES if n_features is None else n_features
        self._X = np.zeros((most, n_features or 0), dtype=np.float32)
        self._grades: list[float] = []
        self.qids: list[bytes] = []
        self._documents: list[bytes] = []

    def read(self, lines: list[tuple[int, bytes]]) -> None:
        """Add numbered lines: their features at once, and line by line only to find the one that is wrong."""
        features = []
        for number, line in lines:
            match = _LINE.match(line)
            grade = None if match is None else _float32(match[1].decode("utf-8", "replace"))
            if match is None or grade is None or not math.isfinite(grade):
                raise self._fail(number, line)
            self._grades.append(grade)
            self.qids.append(match[2])
            self._documents.append(match[4] or b"")
            features.append(match[3])
        try:
            row, feature, value = _parse(features, self._limit)
        except ValueError as error:
            for (number, line), words in zip(lines, features, strict=True):
                self._check(number, line, words)
            raise FileFormatError(self._path, lines[0][0], f"{error}, in this line or one after it") from error
        self._widen(int(feature.max(initial=0)))
        self._X[row + len(self.qids) - len(lines), feature - 1] = value

    def _widen(self, width: int) -> None:
        if width > self._X.shape[1]:
            self._X = np.pad(self._X, ((0, 0), (0, width - self._X.shape[1])))

    def query_set(self) -> QuerySet:
        """Return the rows, grouped by query."""
        try:
            qid = np.array([each.decode() for each in self.qids], dtype=np.str_)
            ids = np.array([each.decode() for each in self._documents], dtype=np.str_) if any(self._documents) else None
        except UnicodeDecodeError as error:
            raise FileFormatError(self._path, 0, f"an id is not UTF-8 ({error}): convert the file to UTF-8") from error
        queries = QuerySet.from_arrays(self._X[: len(qid)], np.array(self._grades), qid=qid, doc_id=ids)
        return queries.replace(qid=parse_ids(queries.qid))

    def _fail(self, number: int, line: bytes) -> FileFormatError:
        """Return what is wrong with the beginning of a line."""
        words = [word.decode("utf-8", "replace") for word in line.partition(b"#")[0].split()]
        if len(words) < 2 or not words[1].startswith("qid:") or words[1] == "qid:":
            word = words[1] if len(words) > 1 else "the end of the line"
            problem = f"expected qid:<query> after the grade, found {word!r}: write lines such as {_EXAMPLE}"
        else:
            problem = (
                f"query {words[1].removeprefix('qid:')}: expected a grade (a number) first, found {words[0]!r}: drop "
                "rows that are not judged"
            )
        return FileFormatError(self._path, number, problem)

    def _check(self, number: int, line: bytes, words: bytes) -> None:
        """Raise if the features of a line are not as they should be."""
        query = line.split()[1].partition(b"#")[0].decode("utf-8", "replace").removeprefix("qid:")

        def fail(problem: str) -> FileFormatError:
            return FileFormatError(self._path, number, f"query {query}: {problem}")

        last = 0
        for word in words.decode("utf-8", "replace").split():
            index, colon, value = word.partition(":")
            if not colon or not (index.isascii() and index.isdigit()):
                raise fail(f"expected index:value, found {word!r}: put comments after a #")
            feature = int(index)
            if feature == 0:
                raise fail(f"feature 0 in {word!r}, but indices start at 1: add 1 to every index")
            if feature <= last:
                raise fail(f"feature {feature} after feature {last}, but indices must ascend: sort the line")
            if feature > self._limit:
                raise fail(f"feature {feature}, expected at most {self._limit}: increase n_features or fix the line")
            if _float32(value) is None:
                raise fail(
                    f"feature {feature} is {value!r}, expected a number in the range of float32: write nan for a "
                    "missing value"
                )
            last = feature


def _parse(features: list[bytes], limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Float32]:
    """Return row, index and value of each ``index:value``. Raise ValueError if one of them is wrong."""
    text = b" ".join([b"", *features])
    symbols = np.frombuffer(text, dtype=np.uint8)
    in_word, colon = symbols > ord(" "), np.flatnonzero(symbols == ord(":"))
    word_at = np.cumsum(in_word[1:] > in_word[:-1])
    numbers = np.array([float(word) for word in text.replace(b":", b" ").split()])
    one_colon_each = np.array_equal(word_at[colon - 1], np.arange(1, word_at.max(initial=0) + 1))
    if len(numbers) != 2 * len(colon) or not one_colon_each:
        raise ValueError("expected one index and one value in each word")
    index, value = numbers[::2], numbers[1::2]
    row = np.repeat(np.arange(len(features)), [words.count(b":") for words in features])
    ascends = (index[1:] > index[:-1]) | (row[1:] > row[:-1])
    too_large = np.isfinite(value) & (np.abs(value) >= _ROUNDS_TO_INFINITY)
    whole = (index >= 1) & (index <= limit) & (index == np.floor(index))
    if not (whole.all() and ascends.all()) or too_large.any():
        raise ValueError("expected ascending indices and numbers in the range of float32")
    return row, index.astype(np.int64), value.astype(np.float32)


def _float32(word: str) -> float | None:
    """Return the number that a word represents, or None if it is not a number or too large for float32."""
    try:
        number = float(word)
    except ValueError:
        return None
    return None if not word.isascii() or _ROUNDS_TO_INFINITY <= abs(number) < math.inf else number


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
