"""Rankers in PyTerrier pipelines (``pip install '.[pyterrier]'``): an estimator, and an artifact to keep it.

::

    from kinrank.pyterrier import Rerank

    pipeline = bm25 >> features >> Rerank()
    pipeline.fit(train_topics, qrels)
    pt.Experiment([bm25, pipeline], test_topics, qrels, ["ndcg_cut_10"])

`MemoryRerank` needs no features.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DataError
from kinrank.memory.memory import Document, Memory
from kinrank.rankers.base import Ranker, load
from kinrank.registry import import_extra

if TYPE_CHECKING:
    import pandas as pd

import_extra("pyterrier", "pyterrier")
import pyterrier as pt  # noqa: E402 - after the check that it is installed


class Rerank(pt.Estimator):
    """Ranks the documents of each query by their ``features``.

    Parameters
    ----------
    ranker : Ranker, optional
        The ranker; by default a `kinrank.KinRanker`. It receives the column ``query`` as the text of the query and the
        column ``query_vec``, if there is one, as its vector.
    feature_names : sequence of str, optional
        One name per feature, for explanations and importances.
    """

    def __init__(self, ranker: Ranker | None = None, *, feature_names: Sequence[str] | None = None) -> None:
        super().__init__()
        if ranker is None:
            from kinrank.rankers.kin.ranker import KinRanker  # needs LightGBM, which another ranker may not

            ranker = KinRanker()
        self.ranker = ranker
        self.feature_names = feature_names

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> Self:
        """Fit the ranker.

        Parameters
        ----------
        topics_or_res_tr
            Results with the columns qid, docno and features; with query, its text is used.
        qrels_tr
            Judgments with the columns qid, docno and label. Documents without one count as grade 0.
        topics_or_res_va, qrels_va
            Not used: rankers choose their settings on parts of the training queries that they hold out.
        """
        del topics_or_res_va, qrels_va
        if not len(topics_or_res_tr):
            raise DataError("there are no results to learn from: retrieve documents for the training topics first")
        judged = _labels(qrels_tr)
        pairs = zip(topics_or_res_tr["qid"].astype(str), topics_or_res_tr["docno"].astype(str), strict=True)
        self.ranker.fit(self._queries(topics_or_res_tr, [judged.get(pair, np.nan) for pair in pairs]))
        return self

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the results with new scores and ranks."""
        if not len(inp):
            return inp.assign(score=np.empty(0), rank=np.empty(0, dtype=np.int64))
        queries = self._queries(inp, None)
        scores = queries.in_caller_order(self.ranker.predict(queries))
        ranked: pd.DataFrame = pt.model.add_ranks(inp.assign(score=scores))
        return ranked

    def save(self, path: str | PathLike[str]) -> RankerArtifact:
        """Save the fitted ranker as an artifact: a model folder that the rest of kinrank loads, too."""
        self.ranker.save(path)
        artifact = RankerArtifact(path)
        (Path(path) / "pt_meta.json").write_text(json.dumps(artifact.metadata()) + "\n")
        return artifact

    def _queries(self, results: pd.DataFrame, grades: list[float] | None) -> QuerySet:
        _check_columns(results, "qid", "docno", "features")
        first = results.drop_duplicates("qid")
        columns: dict[str, Any] = {}
        if "query" in results.columns:
            columns[TEXT] = first["query"].astype(str).to_numpy(dtype=np.str_)
        if "query_vec" in results.columns:
            columns[VECTORS] = np.stack(first["query_vec"].to_list()).astype(np.float32)
        return QuerySet.from_arrays(
            np.stack(results["features"].to_list()),
            grades,
            qid=results["qid"].astype(str).to_list(),
            doc_id=results["docno"].astype(str).to_list(),
            feature_names=self.feature_names,
            query_columns=columns,
        )


class RankerArtifact(pt.Artifact):
    """A saved ranker: `pt.Artifact.load`, `to_hf` and the like work with it.

    Parameters
    ----------
    path
        The model folder, of `Rerank.save`, `Ranker.save` or ``kinrank train``.
    """

    ARTIFACT_TYPE = "ranker"
    ARTIFACT_FORMAT = "kinrank"
    ARTIFACT_PACKAGE_HINT = "kinrank[pyterrier]"

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(Path(path))

    def rerank(self) -> Rerank:
        """Return the transformer, fitted."""
        ranker = load(self.path)
        return Rerank(ranker, feature_names=ranker.feature_names_)

    def metadata(self) -> dict[str, str]:
        """Return what tells PyTerrier which class loads the folder."""
        return {"type": self.ARTIFACT_TYPE, "format": self.ARTIFACT_FORMAT, "package_hint": self.ARTIFACT_PACKAGE_HINT}


class MemoryRerank(pt.Estimator):
    """Ranks the documents of each query by what was chosen for similar queries.

    The column ``reason`` has the reason for each place.

    Queries and documents need the columns qid, query, docno and score; with the column text, a document that changes
    starts anew.

    Parameters
    ----------
    memory : Memory
        The memory. Clicks can be taught with `Memory.learn`.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> Self:
        """Learn from judged results: documents with a label above 0 are liked, those with another label disliked.

        Parameters
        ----------
        topics_or_res_tr
            Results with the columns qid, query and docno.
        qrels_tr
            Judgments with the columns qid, docno and label.
        topics_or_res_va, qrels_va
            Not used.
        """
        del topics_or_res_va, qrels_va
        _check_columns(topics_or_res_tr, "qid", "query", "docno")
        judged = _labels(qrels_tr)
        for qid, results in topics_or_res_tr.groupby("qid", sort=False):
            grades = [judged.get((str(qid), docno)) for docno in results["docno"].astype(str)]
            documents = list(zip(_documents(results), grades, strict=True))
            self.memory.learn(
                results["query"].iloc[0],
                liked=[document for document, grade in documents if grade is not None and grade > 0],
                disliked=[document for document, grade in documents if grade is not None and grade <= 0],
                user=f"qrels of {qid}",  # a judgment for one query says nothing less of the others
            )
        return self

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the results with new scores, ranks and reasons."""
        _check_columns(inp, "qid", "query", "docno", "score")
        score, reason = np.empty(len(inp)), np.empty(len(inp), dtype=object)
        for rows in inp.groupby("qid", sort=False).indices.values():
            results = inp.iloc[rows]
            for hit in self.memory.rerank(results["query"].iloc[0], _documents(results), results["score"].to_list()):
                score[rows[hit.place]], reason[rows[hit.place]] = hit.score, hit.reason
        ranked: pd.DataFrame = pt.model.add_ranks(inp.assign(score=score, reason=reason))
        return ranked


def _labels(qrels: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the labels of documents by query and document."""
    return {(str(q), str(d)): label for q, d, label in qrels[["qid", "docno", "label"]].itertuples(index=False)}


def _documents(results: pd.DataFrame) -> list[Document]:
    """Return ids, with texts if there are any."""
    names = results["docno"].astype(str)
    return [*zip(names, results["text"].astype(str), strict=True)] if "text" in results.columns else [*names]


def _check_columns(results: pd.DataFrame, *columns: str) -> None:
    for column in columns:
        if column not in results.columns:
            raise DataError(f"the results have no column {column!r} among {list(results.columns)}: add that stage")
