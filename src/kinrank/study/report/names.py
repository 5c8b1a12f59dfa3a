"""Names of queries: their text if there is one, else their id."""

from __future__ import annotations

import unicodedata

from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.study.leaks import TEXTS

_MAX_LENGTH = 80  # characters; long names only make the file larger


def query_names(queries: QuerySet, column: str | None = None) -> tuple[str, ...]:
    """Return the name of each query.

    Parameters
    ----------
    queries
        The queries.
    column
        Query column with the names; by default the first of `kinrank.study.leaks.TEXTS`, else the id.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], qid=[7, 8], query_columns={"text": ["alien", ""]})
    >>> query_names(queries)
    ('alien', '8')
    """
    if column is not None and column not in queries.query_columns:
        known = ", ".join(map(repr, queries.query_columns)) or "none"
        raise ParameterError(f"no query column {column!r} for the names of queries; query columns: {known}")
    ids = [str(qid) for qid in queries.qid.tolist()]
    found = column or next((each for each in TEXTS if each in queries.query_columns), None)
    if found is None or queries.query_columns[found].ndim != 1:
        return tuple(map(clean, ids))
    texts = (clean(str(text)) for text in queries.query_columns[found].tolist())
    return tuple(text or clean(qid) for text, qid in zip(texts, ids, strict=True))


def clean(text: str) -> str:
    """Return the text as one short line without control characters."""
    line = " ".join("".join(" " if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in text).split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1].rstrip() + "…"
