"""Judgments of ir_datasets (``pip install 'kinrank[ir-datasets]'``) as a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kinrank.errors import DataError
from kinrank.registry import import_extra


def judgments_from_ir_datasets(dataset: Any) -> pa.Table:
    """Return the judgments of a data set with the text of each query, as `kinrank log` reads them.

    Parameters
    ----------
    dataset
        The name of a data set, such as ``"beir/scifact/test"``, or a loaded one, with queries and qrels.

    Returns
    -------
    pyarrow.Table
        One row per judgment: qid, query (its text), doc_id, y. Negative grades, which some collections give to spam,
        become 0. Judgments of queries that the data set does not list are left out.

    Examples
    --------
    >>> from collections import namedtuple
    >>> class Tiny:
    ...     def queries_iter(self):
    ...         yield namedtuple("Query", "query_id text")("7", "alien")
    ...
    ...     def qrels_iter(self):
    ...         yield namedtuple("Qrel", "query_id doc_id relevance")("7", "d1", -2)
    >>> judgments_from_ir_datasets(Tiny()).to_pylist()
    [{'qid': '7', 'query': 'alien', 'doc_id': 'd1', 'y': 0}]
    """
    if isinstance(dataset, str):
        dataset = import_extra("ir_datasets", "ir-datasets").load(dataset)
    for method in ("queries_iter", "qrels_iter"):
        if not hasattr(dataset, method):
            raise DataError(
                f"{dataset!r} has no {method.removesuffix('_iter')}: choose a data set with queries and qrels"
            )
    texts = {query.query_id: _text(query) for query in dataset.queries_iter()}
    judged = [judgment for judgment in dataset.qrels_iter() if judgment.query_id in texts]
    return pa.table(
        {
            "qid": pa.array([judgment.query_id for judgment in judged], pa.string()),
            "query": pa.array([texts[judgment.query_id] for judgment in judged], pa.string()),
            "doc_id": pa.array([judgment.doc_id for judgment in judged], pa.string()),
            "y": pa.array([max(0, judgment.relevance) for judgment in judged], pa.int64()),
        }
    )


def _text(query: Any) -> str:
    """Return what a user would type: some collections have titles and descriptions."""
    return str(query.default_text() if hasattr(query, "default_text") else query[1])
