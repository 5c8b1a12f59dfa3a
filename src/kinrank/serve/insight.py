"""What a model reports about a query besides its ranking: local weights and an explanation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinrank.arrays import Float32, Float64
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
from kinrank.serve.selftest import example_candidates
from kinrank.serve.served_model import ServedModel

_REASONS = 3  # features named for each document


@dataclass(frozen=True, eq=False)
class StoredExample:
    """A query that was stored with a model, and the scores its candidates had when the model was written."""

    qid: str
    candidates: CandidateSet
    scores: list[float]


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
        rows = candidates.align(names)
        queries = to_query_set([candidates], [rows], names)
        explained = ranker.explain(queries)[0]
        # A blend has trees besides the local model, so its stand-in is nearer to its order.
        weights = explained.weights
        if has_weights(ranker) and ranker.normalization is None:
            weights = ranker.weights_with_fidelity(queries).weights[0]
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
        spread=dict(zip(names, _moments(rows)[1].tolist(), strict=True)),
        reasons=None if weights is None else _reasons(candidates.ids, names, rows, weights),
    )


def _reasons(ids: list[str], names: tuple[str, ...], rows: Float32, weights: Float64) -> dict[str, dict[str, float]]:
    """Return what the most effective features add to the score of each document, relative to the mean candidate."""
    effects = np.nan_to_num((rows - _moments(rows)[0]) * weights)
    largest = np.argsort(-np.abs(effects), axis=1, kind="stable")[:, :_REASONS]
    return {
        document: {names[f]: float(effects[row, f]) for f in largest[row].tolist() if effects[row, f]}
        for row, document in enumerate(ids)
    }


def _moments(rows: Float32) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each feature over its known values; 0 if it has none."""
    values = rows.astype(np.float64)
    known = np.isfinite(values)
    counts = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, values, 0.0).sum(axis=0) / counts
    deviations = np.where(known, values - means, 0.0)
    return means, np.sqrt((deviations**2).sum(axis=0) / counts)


def stored_examples(served: ServedModel) -> list[StoredExample]:
    """Return the examples stored with a model; empty if there are none."""
    if served.examples is None:
        return []
    queries, scores = served.examples
    return [
        StoredExample(
            str(qid),
            example_candidates(queries, position),
            scores[queries.offsets[position] : queries.offsets[position + 1]].tolist(),
        )
        for position, qid in enumerate(queries.qid.tolist())
    ]
