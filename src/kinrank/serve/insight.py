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
from kinrank.serve.observer import Observer
from kinrank.serve.served_model import ServedModel


def weights_of(
    served: ServedModel, name: str, candidates: CandidateSet, min_fidelity: float, observer: Observer
) -> QueryWeights:
    """Return linear weights of the query, or a fallback if they reproduce the model's ranking too poorly.

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
        found = ranker.weights_with_fidelity(to_query_set([candidates], [candidates.align(names)], names))
    except UnknownFeatureError as error:
        return QueryWeights(model=name, fallback=Fallback.UNKNOWN_FEATURE, detail=str(error))
    except EncoderError as error:
        observer.error("encode", error)
        return QueryWeights(model=name, fallback=Fallback.ENCODER, detail=str(error))
    except KinrankError as error:
        return QueryWeights(model=name, fallback=Fallback.NOT_FINITE, detail=str(error))
    fidelity = None if found.fidelity is None else float(found.fidelity[0])
    if fidelity is not None and fidelity < min_fidelity:
        detail = f"weights reproduce the model's ranking with fidelity {fidelity:.2f}, below {min_fidelity:g}"
        return QueryWeights(None, name, served.version, Fallback.UNFAITHFUL, detail, fidelity=fidelity)
    named = dict(zip(names, found.weights[0].tolist(), strict=True))
    return QueryWeights(named, name, served.version, normalization=ranker.normalization, fidelity=fidelity)


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
