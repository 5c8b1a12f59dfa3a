"""Judgments and runs of ir_datasets and ranx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.data.files import parse_ids
from kinrank.data.trec import Qrels, Run
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


# --- judgments and runs of ranx (``pip install 'kinrank[ranx]'``), by way of those of TREC files ----------------------
#
# Ids are text in ranx. `kinrank.data.trec` compares ids as text, so a run finds its queries again.


def qrels_to_ranx(qrels: Qrels) -> Any:
    """Return a ``ranx.Qrels``. `kinrank.data.trec.qrels_from_queries` returns the judgments of queries."""
    return import_extra("ranx", "ranx").Qrels(_nested(qrels.qid, qrels.doc_id, qrels.grade.tolist()))


def run_to_ranx(run: Run) -> Any:
    """Return a ``ranx.Run``. `kinrank.data.trec.run_from_scores` returns the run of a ranker's scores."""
    return import_extra("ranx", "ranx").Run(_nested(run.qid, run.doc_id, run.score.tolist()), name=run.tag)


def qrels_from_ranx(qrels: Any) -> Qrels:
    """Return the judgments of a ``ranx.Qrels``."""
    qid, doc_id, grades = _flat(qrels.to_dict())
    return Qrels(qid, doc_id, grades.astype(np.int64))


def run_from_ranx(run: Any) -> Run:
    """Return the run of a ``ranx.Run``, each query ranked by descending score."""
    ranked = {query: dict(sorted(docs.items(), key=lambda item: -item[1])) for query, docs in run.to_dict().items()}
    qid, doc_id, scores = _flat(ranked)
    rank = np.concatenate([np.arange(1, len(docs) + 1) for docs in ranked.values()] or [np.empty(0, dtype=np.int64)])
    return Run(qid, doc_id, scores.astype(np.float64), rank, tag=run.name or "ranx")


def _nested(qid: NDArray[Any], doc_id: NDArray[Any], values: list[Any]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    rows = zip(qid.astype(np.str_).tolist(), doc_id.astype(np.str_).tolist(), values, strict=True)
    for query, document, value in rows:
        nested.setdefault(query, {})[document] = value
    return nested


def _flat(nested: Mapping[str, Mapping[str, Any]]) -> tuple[NDArray[Any], NDArray[np.str_], NDArray[Any]]:
    rows = [(query, document, value) for query, docs in nested.items() for document, value in docs.items()]
    qid, doc_id, values = zip(*rows, strict=True) if rows else ((), (), ())
    return parse_ids(np.array(qid, dtype=np.str_)), np.array(doc_id, dtype=np.str_), np.array(values)
