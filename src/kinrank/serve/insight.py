"""What a model reports about a query besides its ranking: local weights and an explanation."""

from __future__ import annotations

from kinrank.errors import EncoderError, KinrankError, UnsupportedByModelError
from kinrank.rankers.capabilities import can_explain, has_weights
from kinrank.serve.messages import (
    CandidateSet,
    Fallback,
    Neighbor,
    QueryExplanation,
    QueryWeights,
    UnknownFeatureError,
    to_query_set,
)
from kinrank.serve.models import ServedModel
from kinrank.serve.observer import Observer


def weights_of(served: ServedModel, name: str, candidates: CandidateSet, observer: Observer) -> QueryWeights:
    """Return the weights of the query's local model.

    Raises
    ------
    UnsupportedByModelError
        The model has no weights because its learner is not linear.
    """
    ranker, names = served.ranker, served.ranker.feature_names_
    if not has_weights(ranker):
        raise UnsupportedByModelError(f"{type(ranker).__name__} has no weights: its model is not linear")
    try:
        candidates = served.encoder(candidates, observer)
        weights = ranker.weights(to_query_set([candidates], [candidates.align(names)], names))[0]
    except UnknownFeatureError as error:
        return QueryWeights(model=name, fallback=Fallback.UNKNOWN_FEATURE, detail=str(error))
    except EncoderError as error:
        observer.error("encode", error)
        return QueryWeights(model=name, fallback=Fallback.ENCODER, detail=str(error))
    except KinrankError as error:
        return QueryWeights(model=name, fallback=Fallback.NOT_FINITE, detail=str(error))
    named = dict(zip(names, weights.tolist(), strict=True))
    return QueryWeights(named, name, served.version, normalization=ranker.normalization)


def explanation_of(
    served: ServedModel, candidates: CandidateSet, limit: int, observer: Observer
) -> QueryExplanation | None:
    """Return the nearest judged queries, at most `limit`, and the weights; None if the model cannot explain."""
    ranker, names = served.ranker, served.ranker.feature_names_
    if not can_explain(ranker):
        return None
    try:
        candidates = served.encoder(candidates, observer)
        explained = ranker.explain(to_query_set([candidates], [candidates.align(names)], names))[0]
    except KinrankError:
        return None
    nearest = zip(explained.neighbors[:limit].tolist(), explained.distances[:limit].tolist(), strict=True)
    return QueryExplanation(
        neighbors=[Neighbor(str(qid), distance) for qid, distance in nearest],
        n_neighbors=len(explained.neighbors),
        unusual=explained.unusual,
        weights=None if explained.weights is None else dict(zip(names, explained.weights.tolist(), strict=True)),
        global_weights=(
            None
            if explained.global_weights is None
            else dict(zip(names, explained.global_weights.tolist(), strict=True))
        ),
        shares=explained.shares or None,
    )
