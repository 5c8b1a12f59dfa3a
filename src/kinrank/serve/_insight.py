"""What a model reports about a query besides its ranking: local weights and an explanation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import UnsupportedByModelError
from kinrank.rankers._local.explanation import candidate_moments
from kinrank.rankers.capabilities import can_explain, has_weights
from kinrank.rankers.kin._stand_in import BoostedWeights
from kinrank.serve._served_model import ServedModel
from kinrank.serve.messages import (
    CandidateSet,
    Failure,
    Fallback,
    Neighbor,
    Observer,
    QueryExplanation,
    QueryWeights,
    failure_in,
    failure_of,
    to_query_set,
)
from kinrank.serve.settings import Settings

_REASONS = 3  # features named for each document


def weights_of(
    served: ServedModel, name: str, candidates: CandidateSet, settings: Settings, observer: Observer
) -> QueryWeights:
    """Return linear weights of the query, or a fallback for the reasons that a ranking has, and for poor weights.

    Raise `UnsupportedByModelError` if the learner of the model is not linear.
    """
    ranker, names = served.ranker, served.ranker.feature_names_
    if not has_weights(ranker):
        raise UnsupportedByModelError(f"{type(ranker).__name__} has no weights: its model is not linear")

    def fall_back(failure: Failure) -> QueryWeights:
        return QueryWeights(model=name, fallback=failure.reason, detail=failure.detail)

    rows = None
    try:
        candidates = served.encoder(candidates, observer)
        rows = candidates.align(names)
        queries = to_query_set([candidates], [rows], names)
        predicted = served.ranker.predict_with_novelty(queries)
        novelty = None if predicted.novelty is None else float(predicted.novelty[0])
        unused = failure_in(predicted.scores, novelty, settings.max_novelty)
        if unused is not None:
            return fall_back(unused)
        found = _boosted(served, queries)
    except Exception as error:
        failure = failure_of(error, rows)
        if failure.where is not None:
            observer.error(failure.where, error)
        return fall_back(failure)
    fidelity = found.fidelity
    if fidelity is not None and fidelity < settings.min_fidelity:
        detail = f"weights reproduce the model's ranking with fidelity {fidelity:.2f}, below {settings.min_fidelity:g}"
        return QueryWeights(None, name, served.version, Fallback.UNFAITHFUL, detail, fidelity=fidelity)
    boosts = zip(candidates.ids, found.boosts.tolist(), strict=True)
    return QueryWeights(
        _by_name(names, found.weights),
        name,
        served.version,
        normalization=ranker.normalization,
        fidelity=fidelity,
        boosts={doc_id: boost for doc_id, boost in boosts if boost} or None,
    )


def _boosted(served: ServedModel, queries: QuerySet) -> BoostedWeights:
    """Return the weights of a query, and boosts if the model knows what people chose."""
    if served.choices is not None:
        boosted: BoostedWeights = served.choices.boosted_weights(queries)
        return boosted
    found = served.ranker.weights_with_fidelity(queries)
    fidelity = None if found.fidelity is None else float(found.fidelity[0])
    return BoostedWeights(found.weights[0], np.zeros(queries.n_rows), fidelity)


def explanation_of(served: ServedModel, candidates: CandidateSet, limit: int, observer: Observer) -> QueryExplanation:
    """Return the nearest judged queries, at most `limit`, and the weights; see `Service.explain` for what it raises."""
    ranker, names = served.ranker, served.ranker.feature_names_
    if not can_explain(ranker):
        raise UnsupportedByModelError(f"{type(ranker).__name__} has no explanations: it ranks without judged queries")
    candidates = served.encoder(candidates, observer)
    rows = candidates.align(names)
    queries = to_query_set([candidates], [rows], names)
    explained = ranker.explain(queries)[0]
    # A blend has trees besides the local model, so its stand-in is nearer to its order.
    weights = explained.weights
    if has_weights(ranker) and ranker.normalization is None:
        weights = ranker.weights_with_fidelity(queries).weights[0]
    others = explained.others[:limit]
    ids = explained.neighbors[others]
    nearest = zip(ids.tolist(), explained.distances[others].tolist(), ranker.names_.texts.find(ids), strict=True)
    titles = dict(zip(candidates.ids, ranker.names_.titles.find(np.array(candidates.ids)), strict=True))
    return QueryExplanation(
        neighbors=[Neighbor(str(qid), distance, text) for qid, distance, text in nearest],
        n_neighbors=len(explained.neighbors),
        unusual=explained.unusual,
        local_weights=_by_name(explained.feature_names, explained.weights),
        global_weights=_by_name(explained.feature_names, explained.global_weights),
        shares=explained.shares or None,
        spread=_by_name(explained.feature_names, explained.spread),
        titles={document: title for document, title in titles.items() if title} or None,
        # A model may know more features, after those of the request.
        reasons=None if weights is None else _reasons(candidates.ids, names, rows, weights[: len(names)]),
        choices=_in_words(candidates.ids, explained.chosen),
        judged=_in_words(candidates.ids, explained.judged),
    )


def _in_words(ids: list[str], words_of: Callable[[int], str]) -> dict[str, str] | None:
    """Return what is known of each document, by id; None if nothing is."""
    return {document: words for row, document in enumerate(ids) if (words := words_of(row))} or None


def _by_name(names: tuple[str, ...], values: Float64 | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values.tolist(), strict=True))


def _reasons(ids: list[str], names: tuple[str, ...], rows: Float32, weights: Float64) -> dict[str, dict[str, float]]:
    """Return what the most effective features add to the score of each document, relative to the mean candidate."""
    effects = np.nan_to_num((rows - candidate_moments(rows)[0]) * weights)
    largest = np.argsort(-np.abs(effects), axis=1, kind="stable")[:, :_REASONS]
    return {
        document: {names[f]: float(effects[row, f]) for f in largest[row].tolist() if effects[row, f]}
        for row, document in enumerate(ids)
    }
