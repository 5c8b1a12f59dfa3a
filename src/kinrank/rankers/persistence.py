"""The settings of a ranker as JSON, with the learners, describers and indexes that they name."""

from __future__ import annotations

from typing import Any

from kinrank.describe import DESCRIBERS, METRICS
from kinrank.learn import LEARNERS
from kinrank.learn.regressors import REGRESSORS
from kinrank.neighbors import INDEXES
from kinrank.rankers.registry import RANKERS
from kinrank.store import encode

PARTS = (RANKERS, LEARNERS, REGRESSORS, DESCRIBERS, METRICS, INDEXES)
"""The registries of what settings may hold."""


def settings_of(ranker: Any) -> dict[str, Any]:
    """Return the name of a ranker and its settings that differ from the defaults, ready for JSON.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> settings_of(KnnRanker(50, prior="none"))
    {'ranker': 'knn', 'settings': {'n_neighbors': 50, 'prior': 'none'}}
    """
    settings = encode(ranker.storable_params(), PARTS)
    defaults = encode(type(ranker)().get_params(deep=False), PARTS)
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return {"ranker": RANKERS.name_of(type(ranker)), "settings": changed}
