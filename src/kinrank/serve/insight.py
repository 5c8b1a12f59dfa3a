"""What a model reports about a query besides its ranking: local weights and an explanation."""

from __future__ import annotations

from kinrank.errors import KinrankError, ParameterError, UnableModelError
from kinrank.serve.messages import (
    CandidateSet,
    Explanation,
    Fallback,
    Neighbor,
    QueryWeights,
    UnknownFeatureError,
    to_query_set,
)
from kinrank.serve.models import ServedModel


def weights_of(served: ServedModel, name: str, candidates: CandidateSet) -> QueryWeights:
    """Return the weights of the query's local model.

    Raises
    ------
    UnableModelError
        The model has no weights because its learner is not linear.
    """
    names = served.ranker.feature_names_
    try:
        weights = served.ranker.weights(to_query_set([candidates], [candidates.align(names)], names))[0]
    except UnknownFeatureError as error:
        return QueryWeights(model=name, fallback=Fallback.UNKNOWN_FEATURE, detail=str(error))
    except ParameterError as error:  # raised by rankers without weights
        raise UnableModelError(str(error)) from error
    except KinrankError as error:
        return QueryWeights(model=name, fallback=Fallback.NOT_FINITE, detail=str(error))
    return QueryWeights(dict(zip(names, weights.tolist(), strict=True)), name, served.version)


def explanation_of(served: ServedModel, candidates: CandidateSet, limit: int) -> Explanation | None:
    """Return the nearest judged queries, at most `limit`, and the weights; None if the model cannot explain."""
    if not hasattr(served.ranker, "explain"):
        return None
    names = served.ranker.feature_names_
    try:
        said = served.ranker.explain(to_query_set([candidates], [candidates.align(names)], names))[0]
    except KinrankError:
        return None
    shares = getattr(said, "shares", None)
    said = getattr(said, "kin", said)
    nearest = zip(said.neighbors[:limit].tolist(), said.distances[:limit].tolist(), strict=True)
    return Explanation(
        neighbors=[Neighbor(str(qid), distance) for qid, distance in nearest],
        n_neighbors=len(said.neighbors),
        unusual=said.unusual,
        weights=None if said.weights is None else dict(zip(names, said.weights.tolist(), strict=True)),
        global_weights=(
            None if said.global_weights is None else dict(zip(names, said.global_weights.tolist(), strict=True))
        ),
        shares=shares,
    )
