"""Judgments and runs of ranx (``pip install 'kinrank[ranx]'``), by way of those of TREC files.

Ids are text in ranx. `kinrank.data.trec` compares ids as text, so a run finds its queries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.textfile import parse_ids
from kinrank.data.trec import Qrels, Run
from kinrank.registry import import_extra


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
