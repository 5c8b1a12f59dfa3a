"""Log the features of judged queries from an engine."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.columns import as_ids
from kinrank.data.grouping import offsets_of
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.data.vectors import VECTORS
from kinrank.engines.base import Engine
from kinrank.engines.retry import RetryingPool
from kinrank.errors import DataError, ParameterError

CandidateSource = Literal["top", "judged"]
UNJUDGED_WEIGHT = 0.05
"""Default weight of a hit without a judgment, if the judgments have weights."""


@dataclass
class LogCounts:
    """Counts of what was logged and what was left out."""

    queries: int = 0
    documents: int = 0
    """Logged queries and documents."""
    empty_queries: int = 0
    """Queries left out because none of their candidates is in the index."""
    absent_documents: int = 0
    """Judged documents left out because they are not in the index."""
    unfound_documents: int = 0
    """Judged documents left out because only the engine's top documents are candidates."""
    unjudged_documents: int = 0
    """Logged candidates without a judgment; their grade is NaN."""
    missing: dict[str, int] = field(default_factory=dict)
    """Number of logged documents without a value, by feature."""

    def add(self, other: LogCounts) -> None:
        """Add the counts of another part."""
        self.queries += other.queries
        self.documents += other.documents
        self.empty_queries += other.empty_queries
        self.absent_documents += other.absent_documents
        self.unfound_documents += other.unfound_documents
        self.unjudged_documents += other.unjudged_documents
        for feature, count in other.missing.items():
            self.missing[feature] = self.missing.get(feature, 0) + count


@dataclass(frozen=True, eq=False)
class _LoggedQuery:
    values: Float32
    doc_id: NDArray[np.str_]
    grade: Float32
    sample_weight: Float32 | None
    counts: LogCounts


@dataclass(eq=False, repr=False)
class FeatureLogger:
    """Logs the features of the candidates of judged queries.

    A model should learn from the lists that it will rank: the standing of a candidate, the description of a query and
    the share of relevant candidates all depend on the list. So the default is what `kinrank.serve.search.Searcher`
    ranks, the engine's first hits. Candidates without a judgment are logged without a grade; see `QuerySet.grades`.
    """

    engine: Engine
    """Engine that computes the features."""
    _: KW_ONLY
    candidates: CandidateSource = "top"
    """Documents to log: the engine's first hits, or the judged documents. Not both: their features would tell documents
    that the engine did not return from its hits, and these are all judged, if not all relevant.
    """
    top: int = 100
    """Number of top documents."""
    unjudged_weight: float = UNJUDGED_WEIGHT
    """Weight of hits without a judgment if the judgments have weights, as those from clicks do; 0 leaves these hits out
    of learning and measures.
    """
    timeout: float = 30.0
    """Seconds to wait for a response."""

    def __post_init__(self) -> None:
        if self.candidates not in get_args(CandidateSource):
            raise ParameterError(f"candidates must be 'top' or 'judged', got {self.candidates!r}")
        if self.top < 1:
            raise ParameterError(f"top must be at least 1, got {self.top}")
        if not 0 <= self.unjudged_weight <= 1:
            raise ParameterError(f"unjudged_weight must be between 0 and 1, got {self.unjudged_weight}")

    def log(self, judged: QuerySet, pool: RetryingPool) -> Generator[tuple[QuerySet | None, LogCounts], None, None]:
        """Yield each query with its features, or None if no candidate is in the index, and its counts.

        Parameters
        ----------
        judged
            Queries with document ids, grades and the query column "text", and "vector" if features compare vectors.
            Their features are ignored.
        pool
            Pool that sends the requests.
        """
        if TEXT not in judged.query_columns:
            raise DataError(f"the queries have no column {TEXT!r}, which the engine searches for: add it")
        if judged.doc_id is None:
            raise DataError("the judged documents have no ids to find them in the index: pass doc_id=")
        for query, logged in zip(judged, pool.map(self._log_one, judged), strict=True):
            yield (self._with_features(query, logged) if len(logged.doc_id) else None), logged.counts

    def _log_one(self, query: QuerySet) -> _LoggedQuery:
        text = str(query.query_columns[TEXT][0])
        vectors = query.query_columns.get(VECTORS)
        vector = None if vectors is None else vectors[0]
        documents = as_ids([] if query.doc_id is None else query.doc_id, "doc_id").astype(np.str_)
        grade_of: dict[str, float] = dict(zip(documents.tolist(), query.grades.tolist(), strict=True))
        counts = LogCounts()
        doc_ids = list(grade_of)
        if self.candidates == "top":
            hits = self.engine.search_complete(text, size=self.top, vector=vector, timeout=self.timeout).doc_id.tolist()
            counts.unfound_documents = len(set(doc_ids).difference(hits))
            doc_ids = hits
        logged = self.engine.log(text, doc_ids, vector=vector, timeout=self.timeout)
        logged_ids = [doc_id for doc_id, in_index in zip(doc_ids, logged.found.tolist(), strict=True) if in_index]
        values = logged.values[logged.found]
        counts.queries = int(bool(logged_ids))
        counts.empty_queries = int(not logged_ids)
        counts.documents = len(logged_ids)
        counts.absent_documents = len(doc_ids) - len(logged_ids)
        counts.unjudged_documents = sum(doc_id not in grade_of for doc_id in logged_ids)
        missing = np.isnan(values).sum(axis=0).tolist()
        counts.missing = dict(zip(self.engine.feature_names, missing, strict=True))
        grades = np.array([grade_of.get(doc_id, np.nan) for doc_id in logged_ids], dtype=np.float32)
        weights = None
        if query.sample_weight is not None:
            weight_of = dict(zip(documents.tolist(), query.sample_weight.tolist(), strict=True))
            weights = np.array([weight_of.get(doc_id, self.unjudged_weight) for doc_id in logged_ids], dtype=np.float32)
        return _LoggedQuery(values, np.array(logged_ids, dtype=np.str_), grades, weights, counts)

    def _with_features(self, query: QuerySet, logged: _LoggedQuery) -> QuerySet:
        return QuerySet(
            X=logged.values,
            y=logged.grade,
            offsets=offsets_of([len(logged.doc_id)]),
            qid=query.qid,
            doc_id=logged.doc_id,
            feature_names=self.engine.feature_names,
            query_columns=query.query_columns,
            sample_weight=logged.sample_weight,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the result depends on."""
        if self.candidates == "judged":
            return {"candidates": self.candidates}
        return {"candidates": self.candidates, "top": self.top, "unjudged_weight": self.unjudged_weight}
