"""Queries by name: their text where the data has it, else their id."""

from __future__ import annotations

import unicodedata

from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.study.leaks import TEXTS

_LONGEST = 80  # characters; a name is for telling queries apart, and the file must stay small


def query_names(queries: QuerySet, column: str | None = None) -> tuple[str, ...]:
    """The name of each query.

    Parameters
    ----------
    queries
        Whose names are wanted.
    column
        The query column that has them; by default one of `kinrank.study.leaks.TEXTS`, else the id.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], qid=[7, 8], query_columns={"text": ["alien", ""]})
    >>> query_names(queries)
    ('alien', '8')
    """
    if column is not None and column not in queries.query_columns:
        known = ", ".join(map(repr, queries.query_columns)) or "none"
        raise ParameterError(f"there is no query column {column!r} to name queries by: there are {known}")
    ids = [str(qid) for qid in queries.qid.tolist()]
    found = column or next((each for each in TEXTS if each in queries.query_columns), None)
    if found is None or queries.query_columns[found].ndim != 1:
        return tuple(map(_clean, ids))
    texts = (_clean(str(text)) for text in queries.query_columns[found].tolist())
    return tuple(text or _clean(qid) for text, qid in zip(texts, ids, strict=True))


def _clean(text: str) -> str:
    """One line without control characters, and not too long."""
    line = " ".join("".join(" " if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"
