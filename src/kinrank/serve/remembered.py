"""Documents that people chose for a query, whether or not the engine finds them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kinrank.arrays import Float32
from kinrank.serve.messages import CandidateSet, to_query_set
from kinrank.serve.rollouts import SESSION
from kinrank.serve.service import Service


def remembered_ids(
    service: Service,
    feature_names: tuple[str, ...],
    query: str,
    vector: Float32 | None,
    columns: Mapping[str, float],
    *,
    model: str | None,
) -> list[str]:
    """Return the documents that a model remembers for a query, best first, at most `Settings.remembered`.

    Raises
    ------
    EncoderError, DataError
        The model cannot encode the query.
    """
    most = service.settings.remembered
    if not most or (model is not None and model not in service.slots):
        return []
    # The engine has not been asked yet: the query is looked up with a document that does not exist.
    nothing = np.full((1, len(feature_names)), np.nan, dtype=np.float32)
    candidates = CandidateSet([""], nothing, feature_names, vector, columns, query)
    served = service.rollouts[service.name_of(model)].model_for(candidates, SESSION.get())
    if served is None or served.choices is None:
        return []
    names = served.ranker.feature_names_
    candidates = served.encoder(candidates, service.observer)
    ids: list[str] = served.choices.remembered(to_query_set([candidates], [candidates.align(names)], names), most)
    return ids
