"""A fitted ranker as a model folder, and its settings as JSON."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.id_hashes import IdHashes, hash_ids
from kinrank.data.queryset import QuerySet
from kinrank.describe import DESCRIBERS, METRICS
from kinrank.learn import LEARNERS
from kinrank.learn.regressors import REGRESSORS
from kinrank.neighbors import INDEXES
from kinrank.rankers.registry import RANKERS
from kinrank.store import ModelRecord, decode, encode, write_model
from kinrank.version import __version__

_PARTS = (RANKERS, LEARNERS, REGRESSORS, DESCRIBERS, METRICS, INDEXES)


class Persistent(BaseEstimator):
    """Base of estimators that are saved as folders of arrays, never pickled."""

    feature_names_: tuple[str, ...]
    n_features_in_: int
    learned_from_: IdHashes | None = None  # of the training queries
    judgments_through_: int | None = None  # revision of the live judgments that were learned

    @abstractmethod
    def get_state(self) -> State:
        """Return the fitted ranker as plain arrays."""

    @abstractmethod
    def set_state(self, state: State) -> Self:
        """Restore a fitted ranker from the arrays of `get_state`."""

    @abstractmethod
    def predict(self, X: QuerySet) -> Float64:
        """Score candidates."""

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        examples: QuerySet | None = None,
        judgments_through: int | None = None,
    ) -> None:
        """Write the fitted ranker as a folder that `kinrank.load` reads.

        Parameters
        ----------
        path
            The folder. An existing model is replaced.
        examples
            A few queries to keep in the folder with their scores. Before a service uses the model, it ranks them and
            rejects the model if the scores differ.
        judgments_through
            The revision of the service's judgments that the training queries contain. A service learns only later
            ones, so nothing is learned twice, and judgments that you left out stay out.
        """
        check_is_fitted(self)
        through = self.judgments_through_ if judgments_through is None else judgments_through
        params = encode(self.storable_params(), _PARTS)
        name = RANKERS.name_of(type(self))
        record = ModelRecord(
            name, params, self.feature_names_, __version__, self.get_state(), self.learned_from_, through
        )
        write_model(path, record, None if examples is None else (examples, self.predict(examples)))

    @classmethod
    def from_record(cls, record: ModelRecord, **changed: Any) -> Self:
        """Return the fitted ranker that `save` wrote, with some parameters changed."""
        ranker = cls(**{**decode(record.params, _PARTS), **changed})
        ranker.feature_names_ = record.feature_names
        ranker.n_features_in_ = len(record.feature_names)
        ranker.learned_from_, ranker.judgments_through_ = record.learned_from, record.judgments_through
        return ranker.set_state(record.arrays)

    def copy(self) -> Self:
        """Return a fitted copy that shares the learned arrays; what it learns later, it learns alone."""
        check_is_fitted(self)
        other: Self = clone(self)
        other.feature_names_, other.n_features_in_ = self.feature_names_, self.n_features_in_
        other.learned_from_, other.judgments_through_ = self.learned_from_, self.judgments_through_
        return other.set_state(self.get_state())

    def storable_params(self) -> dict[str, Any]:
        """Return the parameters as a model folder can hold them."""
        params: dict[str, Any] = self.get_params(deep=False)
        return params

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were training queries; None if that is unknown."""
        check_is_fitted(self)
        return None if self.learned_from_ is None else np.isin(hash_ids(queries.qid), self.learned_from_)

    def _remember(self, queries: QuerySet) -> None:
        """Keep what `learned_from` needs, after fitting."""
        self.learned_from_ = hash_ids(queries.qid)


def settings_of(ranker: Persistent) -> dict[str, Any]:
    """Return the name of a ranker and its settings that differ from the defaults, ready for JSON.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> settings_of(KnnRanker(50, prior="none"))
    {'ranker': 'knn', 'settings': {'n_neighbors': 50, 'prior': 'none'}}
    """
    own = encode(ranker.storable_params(), _PARTS)
    defaults = encode(type(ranker)().get_params(deep=False), _PARTS)
    changed = {name: value for name, value in own.items() if value != defaults[name]}
    return {"ranker": RANKERS.name_of(type(ranker)), "settings": changed}


def decoded_settings(record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the ranker's name and its keyword arguments from what `settings_of` returned."""
    return record["ranker"], decode(record["settings"], _PARTS)
