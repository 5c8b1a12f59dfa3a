"""The contract of a ranker: judged queries in, scores in the caller's row order out."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from kinrank.arrays import Float64
from kinrank.data.normalization import Normalization, normalization_of
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import QueryTexts
from kinrank.data.vectors import QueryVectors
from kinrank.describe.encoders import EncoderSpec
from kinrank.errors import DataError, FileFormatError, KinrankError
from kinrank.learn.prepare import Missing, Scale
from kinrank.measure import NDCG
from kinrank.rankers.capabilities import Capable
from kinrank.rankers.intake import QueryInput
from kinrank.rankers.linear_weights import LinearWeights
from kinrank.rankers.persistence import Persistent, decoded_settings
from kinrank.rankers.registry import RANKERS
from kinrank.store import ModelRecord, read_model


@dataclass(frozen=True, eq=False)
class Prediction:
    """Scores of candidates, and how new their queries are.

    Attributes
    ----------
    scores : float64 array of shape (rows,)
        As returned by `Ranker.predict`.
    novelty : float64 array of shape (queries,), or None
        The distance to the nearest judged query. 1.0 is the distance within which 99% of the judged queries have
        their nearest other one. None if the ranker knows no distance between queries.
    """

    scores: Float64
    novelty: Float64 | None = None


class Ranker(QueryInput, Persistent, Capable, ABC):
    """Base of all rankers.

    A ranker implements `_fit`, `_predict`, `get_state` and `set_state` on grouped, checked `QuerySet`s, and declares
    its capabilities. Input in any row order, scikit-learn's conventions and saving come from the bases.

    Wherever X is accepted it may be a `QuerySet`. Then y, qid, group and query_vectors are read from it, and scores
    come back in its row order.
    """

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query before the weights apply; None for features as given."""
        return None

    @abstractmethod
    def _fit(self, queries: QuerySet) -> None:
        """Learn from judged queries."""

    @abstractmethod
    def _predict(self, queries: QuerySet) -> Float64:
        """Score the candidates of each query."""

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        return Prediction(self._predict(queries))

    def remarks(self) -> list[str]:
        """Return what fitting found out that is worth printing after training."""
        return []

    def fit(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from judged queries.

        Parameters
        ----------
        X
            Features, one row per candidate, or a `QuerySet`.
        y
            Grades, one per row. Higher is better.
        qid
            The query of each row, in any order.
        group
            Instead of qid: the number of rows of each query, in order.
        query_vectors
            A vector per query, such as a text embedding: a mapping from query id to vector, or an array with one row
            per query in order of first appearance. Rankers that do not describe queries ignore them.
        query_text
            The text of each query: a mapping from query id to text, or a sequence in order of first appearance.
            Rankers with an encoder turn it into query vectors.
        sample_weight
            How much the judgment of each row counts, at least 0. A pair of candidates counts the product of their
            weights, except in boosted trees, which weigh each candidate.
        """
        queries = self._queries(X, y, qid, group, query_vectors, query_text, sample_weight=sample_weight, fitting=True)
        self._fit(queries)
        self._remember(queries)
        return self

    def predict(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> Float64:
        """Score candidates. Without qid and group all rows are candidates of one query.

        Returns
        -------
        float64 array of shape (rows,)
            In the caller's row order. Only differences within one query are meaningful.
        """
        queries = self._queries(X, None, qid, group, query_vectors, query_text)
        scores = self._predict(queries)
        return scores if isinstance(X, QuerySet) else queries.in_caller_order(scores)

    def predict_with_novelty(self, queries: QuerySet) -> Prediction:
        """Score grouped queries and measure in the same pass how new they are; made for a service.

        Only the feature names are checked. On a single query the other checks are most of what `predict` costs.
        """
        self.check_features(queries.feature_names)
        return self._predict_with_novelty(queries)

    def score(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> float:
        """Return the mean NDCG@10 (`kinrank.measure.NDCG` with its standard conventions).

        Without qid and group all rows are one query, which is seldom meant, so there is a warning. In scikit-learn's
        searches, request qid with ``set_fit_request(qid=True).set_score_request(qid=True)``.
        """
        queries = self._queries(X, y, qid, group, query_vectors, query_text)
        scores = self._predict(queries)
        return (NDCG @ 10).mean(scores, queries.grades, queries.offsets, sample_weight=queries.sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class WeightedRanker(Ranker):
    """Base of rankers with linear weights for each query."""

    scale: Scale = "none"

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query before the weights apply; None for features as given."""
        return normalization_of(self.scale)

    @abstractmethod
    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        """Return the weights of each query, for features as they were given, or as normalized in their query."""

    def weights(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> Float64:
        """Return one weight vector per query, for features as they were given (not as scaled).

        If the ranker normalizes features within each query (`normalization`), the weights are for normalized features.

        Returns
        -------
        float64 array of shape (queries, features)
            Queries in order of first appearance. For a linear ranker, ranking by ``X @ weights``, with 0 for a missing
            feature, equals ranking by `predict`. Candidates for which that does not hold, because ``missing="mean"``
            fills them, raise `DataError`. For other rankers `weights_with_fidelity` measures how close it comes.
        """
        return self._query_weights(self._queries(X, None, qid, group, query_vectors, query_text)).weights

    def weights_with_fidelity(self, queries: QuerySet) -> LinearWeights:
        """Return the weights of grouped queries, and how well they reproduce the ranking; made for a service.

        Only the feature names are checked, as in `predict_with_novelty`.
        """
        self.check_features(queries.feature_names)
        return self._query_weights(queries)


class LinearRanker(WeightedRanker):
    """Base of rankers that score by a weighted sum of features; the weights may depend on the query.

    A subclass implements `_weights`.
    """

    missing: Missing

    @abstractmethod
    def _weights(self, queries: QuerySet) -> Float64:
        """Return one weight vector per query, for features as they were given, or as normalized in their query."""

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        weights = self._weights(queries)
        if self.missing == "mean":
            _check_not_filled(queries, weights)
        return LinearWeights(weights)


def _check_not_filled(queries: QuerySet, weights: Float64) -> None:
    """Raise if a feature with a weight is missing in some candidates of a query but not in others."""
    if not len(queries) or not np.isnan(queries.X).any():
        return
    share = np.add.reduceat(np.isnan(queries.X), queries.offsets[:-1], axis=0, dtype=np.int64) / queries.sizes[:, None]
    filled = (share > 0) & (share < 1) & (weights != 0)
    if filled.any():
        query, feature = np.argwhere(filled)[0]
        raise DataError(
            f"feature {queries.feature_names[feature]!r} is missing (NaN) in some candidates of query "
            f"{queries.qid[query].item()!r}. This ranker fills in the mean, but in a weighted sum the feature counts "
            "0. Fit with missing='zero', or give all candidates the feature"
        )


def load(path: str | os.PathLike[str], *, encoder: EncoderSpec | None = None) -> Ranker:
    """Load a ranker that `Ranker.save` wrote. Its arrays are memory-mapped.

    Parameters
    ----------
    path
        The model folder.
    encoder
        The text encoder, if the ranker was trained with one that has no name, such as an object or a function.
        Another encoder than that of training raises `kinrank.errors.EncoderError`.

    Raises
    ------
    kinrank.errors.StoreError
        If the folder is not a model, comes from a newer kinrank, or has changed since it was written.
    """
    return from_record(read_model(path), encoder=encoder)


def from_record(record: ModelRecord, *, encoder: EncoderSpec | None = None) -> Ranker:
    """Return the fitted ranker of a model folder; see `load`."""
    changed = {} if encoder is None else {"encoder": encoder}
    ranker: Ranker = RANKERS[record.ranker].from_record(record, **changed)
    return ranker


def from_settings(record: dict[str, Any]) -> Ranker:
    """Return the unfitted ranker with settings from `kinrank.rankers.persistence.settings_of`."""
    name, settings = decoded_settings(record)
    ranker: Ranker = RANKERS[name](**settings)
    return ranker


def read_settings(path: str | Path) -> Ranker:
    """Return the unfitted ranker of a settings file: ``{"ranker": "knn", "settings": {"n_neighbors": 50}}``.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "settings.json"
    >>> _ = file.write_text('{"ranker": "knn", "settings": {"n_neighbors": 50}}')
    >>> read_settings(file)
    KnnRanker(n_neighbors=50)
    """
    try:
        return from_settings(json.loads(Path(path).read_bytes()))
    except (ValueError, KeyError, TypeError, KinrankError) as error:
        expected = '{"ranker": NAME, "settings": {NAME: VALUE}}'
        raise FileFormatError(path, 0, f"expected {expected}, as kinrank tune writes it ({error})") from None
