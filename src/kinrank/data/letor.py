"""LETOR files: svmlight lines with ``qid:``, and the document id in the comment."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.files import PathLike, atomic_writer, parse_ids, read_bytes
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, FileFormatError

# --- the compiled parser of `read_letor`. It reads common lines and leaves the others to Python -----------------------
#
# A word ends at whitespace, at the end of the line, or at ``#``. Functions that read take a start position and return
# the end position, or -1 if Python must read the line or raise an error.


NEWLINE, HASH, COLON, POINT, PLUS, MINUS, EQUALS = (ord(c) for c in "\n#:.+-=")
SPACE, TAB, RETURN = (ord(c) for c in " \t\r")
ZERO, NINE = ord("0"), ord("9")
SMALL_E, LARGE_E = (ord(c) for c in "eE")
QID = np.frombuffer(b"qid:", dtype=np.uint8)
NAN, PANDAS_NAN = (np.frombuffer(word, dtype=np.uint8) for word in (b"nan", b"NaN"))
DOCID = np.frombuffer(b"docid", dtype=np.uint8)

# Powers of ten up to 22 and whole numbers of up to 15 digits are exact in float64, so their product or quotient is
# correctly rounded. 18 digits still fit in an int64.
POWERS_OF_TEN = np.array([float(10**k) for k in range(23)])
EXACT_DIGITS = 15
MOST_DIGITS = 18
# With more than 15 digits the relative error is below 2**-51: rounded digits, the division, dropped digits.
SLACK = 2.0**-50
LARGEST = 3.0e38  # just below the largest float32
LARGEST_INDEX = 1_000_000_000

BLANK, NUMBER, OTHER, COMMENT = range(4)  # states of `measure`

kernel = numba.njit(cache=True, nogil=True)


@kernel
def _is_blank(byte):  # type: ignore[no-untyped-def]
    return byte == SPACE or byte == TAB or byte == RETURN  # `in` on a tuple is a slow loop in Numba


@kernel
def _skip_blanks(text, at):  # type: ignore[no-untyped-def]
    while at < len(text) and _is_blank(text[at]):
        at += 1
    return at


@kernel
def _at_end(text, at):  # type: ignore[no-untyped-def]
    """Return whether the features of the line end here."""
    return at >= len(text) or text[at] == NEWLINE or text[at] == HASH


@kernel
def _skip_word(text, at):  # type: ignore[no-untyped-def]
    while not _at_end(text, at) and not _is_blank(text[at]):
        at += 1
    return at


@kernel
def _skip_line(text, at):  # type: ignore[no-untyped-def]
    while at < len(text) and text[at] != NEWLINE:
        at += 1
    return at + 1


@kernel
def _starts_with(text, at, word):  # type: ignore[no-untyped-def]
    if at + len(word) > len(text):
        return False
    for i in range(len(word)):  # noqa: SIM110 (a loop compiles to less code than a generator)
        if text[at + i] != word[i]:
            return False
    return True


@kernel
def _whole_number(text, at):  # type: ignore[no-untyped-def]
    """Read digits and return (number, end): 0 without digits, at most `LARGEST_INDEX`."""
    number = 0
    while at < len(text) and ZERO <= text[at] <= NINE:
        number = min(number * 10 + (text[at] - ZERO), LARGEST_INDEX)
        at += 1
    return number, at


@kernel
def _digits(text, at, mantissa, used):  # type: ignore[no-untyped-def]
    """Append decimal digits to `mantissa`; `used` counts its digits without leading zeros, up to `MOST_DIGITS`."""
    dropped = 0
    while at < len(text) and ZERO <= text[at] <= NINE:
        if used < MOST_DIGITS:
            mantissa = mantissa * 10 + (text[at] - ZERO)
            used += mantissa > 0
        else:
            dropped += 1
        at += 1
    return mantissa, used, dropped, at


@kernel
def _number(text, at):  # type: ignore[no-untyped-def]
    """Read a decimal number and return (value, end), with the float32 value that Python reads; end -1 if unsure."""
    negative = at < len(text) and text[at] == MINUS
    if at < len(text) and (text[at] == MINUS or text[at] == PLUS):
        at += 1
    begin = at
    mantissa, used, scale, at = _digits(text, at, 0, 0)
    n_digits = at - begin
    if at < len(text) and text[at] == POINT:
        begin = at + 1
        mantissa, used, dropped, at = _digits(text, begin, mantissa, used)
        n_digits += at - begin
        scale -= at - begin - dropped
    if n_digits == 0:
        return 0.0, -1
    if at < len(text) and (text[at] == SMALL_E or text[at] == LARGE_E):
        at += 1
        down = at < len(text) and text[at] == MINUS
        if at < len(text) and (text[at] == MINUS or text[at] == PLUS):
            at += 1
        begin = at
        exponent, at = _whole_number(text, at)
        if at == begin:
            return 0.0, -1
        scale += -exponent if down else exponent
    if not (_at_end(text, at) or _is_blank(text[at])):
        return 0.0, -1
    if mantissa == 0:
        scale = 0
    if abs(scale) >= len(POWERS_OF_TEN):
        return 0.0, -1
    value = mantissa * POWERS_OF_TEN[scale] if scale > 0 else mantissa / POWERS_OF_TEN[-scale]
    # Past 15 digits the last bit of the double may be wrong. The float32 is still certain unless the exact number is
    # within that error of a rounding boundary.
    if used > EXACT_DIGITS and np.float32(value * (1 - SLACK)) != np.float32(value * (1 + SLACK)):
        return 0.0, -1
    if value > LARGEST:
        return 0.0, -1
    return (-value if negative else value), at


@kernel
def _value(text, at):  # type: ignore[no-untyped-def]
    """Read a feature value: a number, or ``nan`` or ``NaN`` for a missing one."""
    if _starts_with(text, at, NAN) or _starts_with(text, at, PANDAS_NAN):
        end = at + len(NAN)
        return np.nan, (end if _at_end(text, end) or _is_blank(text[end]) else -1)
    return _number(text, at)


@kernel
def _qid_begin(text, at):  # type: ignore[no-untyped-def]
    """Return the start of the id in ``qid:id``."""
    at = _skip_blanks(text, at)
    return at + len(QID) if _starts_with(text, at, QID) else -1


@kernel
def _features(text, at, row):  # type: ignore[no-untyped-def]
    """Read ``index:value`` words, with indices ascending from 1, into `row`."""
    last = 0
    at = _skip_blanks(text, at)
    while not _at_end(text, at):
        index, at = _whole_number(text, at)
        if index <= last or index > len(row) or at >= len(text) or text[at] != COLON:
            return -1
        value, at = _value(text, at + 1)
        if at < 0:
            return -1
        row[index - 1] = value
        last = index
        at = _skip_blanks(text, at)
    return at


@kernel
def document_span(text, at):  # type: ignore[no-untyped-def]
    """Return the start and end of the document id in a comment: the word after ``docid =``, else the first word."""
    at = _skip_blanks(text, at + 1)
    if _starts_with(text, at, DOCID):
        after = _skip_blanks(text, at + len(DOCID))
        if after < len(text) and text[after] == EQUALS:
            at = _skip_blanks(text, after + 1)
    end = at
    while end < len(text) and text[end] != NEWLINE and not _is_blank(text[end]):  # an id may contain '#'
        end += 1
    return at, end


@kernel
def measure(text):  # type: ignore[no-untyped-def]
    """Return the number of rows and the largest feature index.

    One flat loop, because it reads every byte. A word is `NUMBER` while it has only digits, and `OTHER` after that.
    """
    n_rows, largest, index = 0, 0, 0
    state, line_is_empty = BLANK, True
    for byte in text:
        if byte == NEWLINE:
            state, line_is_empty = BLANK, True
        elif state == COMMENT:
            continue
        elif byte == HASH:
            state = COMMENT
        elif _is_blank(byte):
            state = BLANK
        else:
            n_rows += line_is_empty
            line_is_empty = False
            if ZERO <= byte <= NINE and state != OTHER:
                index = byte - ZERO if state == BLANK else min(index * 10 + (byte - ZERO), LARGEST_INDEX)
                state = NUMBER
            else:
                if byte == COLON and state == NUMBER:
                    largest = max(largest, index)
                state = OTHER
    return n_rows, largest


@kernel
def parse(text, at, n_read, X, y, qid_spans, doc_spans):  # type: ignore[no-untyped-def]
    """Read rows from position `at` into X, y and the spans, from row `n_read`, up to a line that Python must read.

    Returns the start of that line (or the end of the text) and the number of rows read.
    """
    while at < len(text):
        line = at
        at = _skip_blanks(text, at)
        if not _at_end(text, at):
            grade, at = _number(text, at)
            begin = -1 if at < 0 else _qid_begin(text, at)
            if begin < 0:
                return line, n_read
            end = _skip_word(text, begin)
            at = _features(text, end, X[n_read])
            if at < 0 or begin == end:
                return line, n_read
            y[n_read] = grade
            qid_spans[n_read] = begin, end
            if at < len(text) and text[at] == HASH:
                doc_spans[n_read] = document_span(text, at)
            n_read += 1
        at = _skip_line(text, at)
    return len(text), n_read


@kernel
def gather(text, spans, width):  # type: ignore[no-untyped-def]
    """Return the bytes of each span as a row, padded with zeros."""
    words = np.zeros((len(spans), width), dtype=np.uint8)
    for i in range(len(spans)):
        begin, end = spans[i]
        words[i, : end - begin] = text[begin:end]
    return words


def texts_at(text: NDArray[np.uint8], spans: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the text of each span."""
    width = max(1, int((spans[:, 1] - spans[:, 0]).max(initial=0)))
    words = gather(text, spans, width)
    if words.max(initial=0) < 128:  # ASCII: bytes are code points
        plain: NDArray[np.str_] = words.astype(np.uint32).view(f"U{width}")[:, 0]
        return plain
    decoded: NDArray[np.str_] = np.char.decode(words.view(f"S{width}")[:, 0], "utf-8")
    return decoded


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
