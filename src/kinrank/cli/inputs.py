"""Reading the models and queries that a command names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinrank.cli import console
from kinrank.data.source import Source
from kinrank.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinrank.data.queryset import QuerySet
    from kinrank.rankers import Ranker

_EXAMPLES = 5


def load_model(path: str) -> Ranker:
    """Load a model folder with a progress bar."""
    from kinrank.rankers import load

    with console.progress(f"reading {path}"):
        return load(path)


def read_queries(path: str, n_features: int | None = None) -> QuerySet:
    """Read queries with a progress bar.

    Parameters
    ----------
    path
        See `kinrank.data.source.Source`.
    n_features
        Number of features in a LETOR file. A feature that no line names is 0, so pass the number of features of the
        model or of the training data.
    """
    with console.progress(f"reading {path}"):
        return Source(path, n_features).read()


def select_queries(queries: QuerySet, ids: Sequence[str] | None, path: str) -> QuerySet:
    """Return the queries with the given ids in the order of the data; all queries if no ids are given."""
    import numpy as np

    if not ids:
        return queries
    known = queries.qid.astype(np.str_)
    for qid in ids:
        if qid not in known:
            examples = ", ".join(map(repr, known[:_EXAMPLES].tolist()))
            raise DataError(f"{path}: no query {qid!r} among {len(queries):,} queries; ids look like {examples}")
    return queries[np.flatnonzero(np.isin(known, ids))]
