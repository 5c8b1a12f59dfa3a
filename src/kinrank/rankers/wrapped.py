"""A ranker inside another one: given by its name or as an object, and saved so that loading can check it."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from kinrank.arrays import State
from kinrank.errors import StoreError
from kinrank.rankers.base import Ranker
from kinrank.rankers.registry import RANKERS
from kinrank.store import ModelRecord


def unfitted(ranker: Any) -> Any:
    """Return the ranker of a name such as ``"kin"`` or ``"single(learner=lambdamart)"``; an object as it is."""
    return RANKERS.make(ranker) if isinstance(ranker, str) else ranker


def new(ranker: Any) -> Ranker:
    """Return an unfitted ranker by its name, or like a given one."""
    return clone(unfitted(ranker))  # type: ignore[no-any-return]


def restored(ranker: Any, feature_names: tuple[str, ...], state: State) -> Ranker:
    """Return a fitted ranker by its name, or like a given one, with these features and this state."""
    made = new(ranker)
    made.feature_names_, made.n_features_in_ = feature_names, len(feature_names)
    return made.set_state(state)


def storable(ranker: Any) -> Any:
    """Return what a model folder can hold: a plain name stays, one with settings becomes an object.

    An encoder of the ranker is named.
    """
    if isinstance(ranker, str) and ranker in RANKERS:
        return ranker
    wrapped = unfitted(ranker)
    return type(wrapped)(**wrapped.storable_params()) if isinstance(wrapped, Ranker) else wrapped


def check_stored(record: ModelRecord) -> None:
    """Raise `StoreError` if a model folder names a wrapped ranker by more than a plain name.

    Settings in a name would be read after the folder's settings were checked.
    """
    wrapped = record.params["ranker"]
    if isinstance(wrapped, str) and wrapped not in RANKERS:
        raise StoreError(f"the model wraps {wrapped!r}, which is not the name of a ranker: write the model again")
