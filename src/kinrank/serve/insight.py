"""What a model can say of a query beside its ranking: the weights, and the judged queries that decided."""

from __future__ import annotations

from typing import Any

from kinrank.errors import KinrankError, ParameterError, UnableModelError
from kinrank.serve.messages import Candidates, Fallback, UnknownFeatureError, Weights, as_query_set
from kinrank.serve.models import Served


def weights_of(served: Served, name: str, candidates: Candidates) -> Weights:
    """The weights of a query's own model.

    Raises
    ------
    UnableModelError
        Where the model has none: its learner is not linear.
    """
    names = served.ranker.feature_names_
    try:
        found = served.ranker.weights(as_query_set([candidates], [candidates.aligned(names)], names))[0]
    except UnknownFeatureError as error:
        return Weights(model=name, fallback=Fallback.UNKNOWN_FEATURE, detail=str(error))
    except ParameterError as error:  # how a ranker says that it has none
        raise UnableModelError(str(error)) from error
    except KinrankError as error:
        return Weights(model=name, fallback=Fallback.NOT_FINITE, detail=str(error))
    return Weights(dict(zip(names, found.tolist(), strict=True)), name, served.version)


def explanation_of(served: Served, candidates: Candidates, most: int) -> dict[str, Any] | None:
    """The nearest judged queries, at most so many, and the weights beside the global ones; None where unknown.

    Of a ranker with more ingredients than its neighbors, also how much of the order comes from each.
    """
    if not hasattr(served.ranker, "explain"):
        return None
    names = served.ranker.feature_names_
    try:
        said = served.ranker.explain(as_query_set([candidates], [candidates.aligned(names)], names))[0]
    except KinrankError:
        return None
    shares = getattr(said, "shares", None)
    said = getattr(said, "kin", said)
    near = zip(said.neighbors[:most].tolist(), said.distances[:most].tolist(), strict=True)
    return {
        "neighbors": [{"qid": str(qid), "distance": distance} for qid, distance in near],
        "n_neighbors": len(said.neighbors),
        "unusual": said.unusual,
        "weights": None if said.weights is None else dict(zip(names, said.weights.tolist(), strict=True)),
        "global_weights": (
            None if said.global_weights is None else dict(zip(names, said.global_weights.tolist(), strict=True))
        ),
        "shares": shares,
    }
