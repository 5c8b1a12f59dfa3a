"""The ranker that a `KinRanker` starts from, if one is given: its score is a feature, and can rank alone."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError, StoreError
from kinrank.progress import report_progress
from kinrank.rankers._local.choose import assign_folds
from kinrank.rankers.base import Ranker
from kinrank.rankers.registry import RANKERS
from kinrank.store import ModelRecord

NAME = "base"
"""The name of the feature."""
_FOLDS = 4


@dataclass(frozen=True, eq=False)
class BasePart:
    """A fitted ranker, or any model with ``predict(X)``."""

    ranker: Any

    def scores(self, queries: QuerySet) -> Float64:
        """Return the scores of candidates."""
        return np.asarray(self.ranker.predict(queries if isinstance(self.ranker, Ranker) else queries.X), dtype=float)

    def with_score(self, queries: QuerySet) -> QuerySet:
        """Return queries with the score as the last feature; those that have it stay as they are."""
        return queries if queries.feature_names[-1] == NAME else with_feature(queries, self.scores(queries))

    def get_state(self) -> State:
        """Return everything learned."""
        state: State = self.ranker.get_state()
        return state


def with_feature(queries: QuerySet, scores: Float64) -> QuerySet:
    """Return queries with a score as the last feature."""
    columns = np.hstack([queries.X, scores[:, None].astype(np.float32)])
    return queries.replace(X=columns, feature_names=(*queries.feature_names, NAME))


def fit_base(base: Any, queries: QuerySet, group_column: str | None, seed: int) -> tuple[BasePart, QuerySet]:
    """Return the fitted base, and the queries with its score, by models that have not seen them, as the last feature.

    A base that is fitted already scores all queries: it should not have learned from them.
    """
    ranker = unfitted(base)
    if is_fitted(ranker):
        part = BasePart(ranker)
        return part, part.with_score(queries)
    if not isinstance(ranker, Ranker):
        raise ParameterError(f"base must be the name of a ranker, a model file or a ranker, got {base!r}")
    part = BasePart(clone(ranker).fit(queries))
    scores = part.scores(queries)
    fold = assign_folds(queries, _FOLDS, group_column, seed)
    for number in range(0 if fold is None else _FOLDS):  # None: too few queries, or groups
        own = np.flatnonzero(fold == number)
        with suppress(DataError):  # all others have equal grades
            scores[queries.rows_of(own)] = clone(ranker).fit(queries[fold != number]).predict(queries[own])
        report_progress("base", number + 1, _FOLDS)
    return part, with_feature(queries, scores)


def is_fitted(model: Any) -> bool:
    """Return whether a model is fitted; one of another library is taken to be."""
    if not isinstance(model, Ranker):
        return hasattr(model, "predict")
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def unfitted(base: Any) -> Any:
    """Return the ranker of a name such as ``"single(learner=lambdamart)"``, or of a model file; an object as it is."""
    if isinstance(base, os.PathLike) or (isinstance(base, str) and os.path.isfile(base)):
        return RANKERS.make(f"single(learner=lambdamart(model={os.fspath(base)}))")
    return RANKERS.make(base) if isinstance(base, str) else base


def restored(base: Any, feature_names: tuple[str, ...], state: State) -> BasePart | None:
    """Return the fitted base that `BasePart.get_state` described; None if there is none."""
    if not state:
        return None
    made = clone(unfitted(base))
    made.feature_names_, made.n_features_in_ = feature_names, len(feature_names)
    return BasePart(made.set_state(state))


def storable(base: Any) -> Any:
    """Return what a model folder can hold: a plain name stays, one with settings becomes an object.

    An encoder of the ranker is named.
    """
    if base is None or (isinstance(base, str) and base in RANKERS):
        return base
    ranker = unfitted(base)
    if not isinstance(ranker, Ranker):
        raise StoreError(
            f"a base of type {type(ranker).__name__} cannot be saved: save it as a file of LightGBM or XGBoost, and "
            "pass base=FILE"
        )
    return type(ranker)(**ranker.storable_params())


def check_stored(record: ModelRecord) -> None:
    """Raise `StoreError` if a model folder names a base by more than a plain name.

    Settings in a name would be read after the folder's settings were checked.
    """
    base = record.params.get("base")
    if isinstance(base, str) and base not in RANKERS:
        raise StoreError(f"the base of the model is {base!r}, which is not the name of a ranker: write the model again")
