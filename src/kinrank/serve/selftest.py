"""Tests of a model before it is put into use: it must reproduce its scores in time, and fit the attached engine."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.data.vectors import VECTORS
from kinrank.errors import KinrankError, RejectedModelError
from kinrank.memory.evidence import Evidence
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import can_explain, has_weights, takes_evidence
from kinrank.serve.encoding import QueryEncoder
from kinrank.serve.messages import CandidateSet, to_query_set
from kinrank.serve.observer import Observer
from kinrank.store import Examples

if TYPE_CHECKING:
    from kinrank.engines import FeatureSet

_TOLERANCE = 1e-3  # in standard deviations of the scores: float32 sums differ that little between machines
_LATE = 100_000  # a day after those of any evidence


def self_test(ranker: Ranker, examples: Examples | None, deadline: float) -> bool:
    """Rank the stored examples. Return False if there are none.

    Parameters
    ----------
    ranker
        The model.
    examples
        Queries and the scores they had when the model was written.
    deadline
        Seconds that a query may take.

    Raises
    ------
    RejectedModelError
        An example fails, its scores differ, or the examples take too long, possibly because the machine is busy.
    """
    if examples is None:
        return False
    queries, expected = examples
    try:
        scores = ranker.predict_with_novelty(queries).scores
        median = statistics.median(_time(ranker, query) for query in queries)
    except KinrankError as error:
        raise RejectedModelError(f"the model cannot rank its stored examples: {error}") from error
    if not np.allclose(scores, expected, rtol=0, atol=_TOLERANCE * max(float(np.std(expected)), 1e-9)):
        worst = int(np.argmax(np.abs(scores - expected)))
        raise RejectedModelError(
            f"the model does not reproduce the scores of its stored examples: {scores[worst]:.6g} instead of "
            f"{expected[worst]:.6g}; train it again with the versions installed here"
        )
    if median > deadline:
        raise RejectedModelError(
            f"the model takes {median * 1000:.1f} ms per query, the deadline is {deadline * 1000:.1f} ms",
            temporary=True,
        )
    return True


def search_test(ranker: Ranker, encoder: QueryEncoder, features: FeatureSet) -> None:
    """Raise `RejectedModelError` if the model cannot rank what searches with an attached engine pass to it.

    Without this test, every search would fall back to the engine's order.
    """
    for names, others, what in (
        (ranker.feature_names_, features.names, "the model has features that the engine does not compute"),
        (features.names, ranker.feature_names_, "the engine computes features that the model lacks"),
    ):
        if different := [name for name in names if name not in others]:
            raise RejectedModelError(
                f"{what}: {', '.join(different[:5])}; train the model on features that this engine logged"
            )
    if features.compares_vectors:  # of which length, only requests know
        return
    rows = np.zeros((2, len(features.names)), dtype=np.float32)
    candidates = CandidateSet(["a", "b"], rows, features.names, text="query")
    try:
        encoded = encoder(candidates, Observer())
        ranker.predict(to_query_set([encoded], [encoded.align(ranker.feature_names_)], ranker.feature_names_))
    except KinrankError as error:
        raise RejectedModelError(f"the model cannot rank what the attached engine finds: {error}") from error


def warm_up(ranker: Ranker, examples: Examples | None) -> None:
    """Rank, weigh and explain a query as requests pass it, so that the first request finds all code compiled.

    Compiled code differs for arrays that can be written to, as JSON gives them, and those that cannot, as MessagePack
    does, and for evidence that was read and evidence that grew. A model that needs more than the examples have, such as
    a vector, is left as it is.
    """
    names = ranker.feature_names_
    if examples is None:
        query = CandidateSet(["0", "1"], np.zeros((2, len(names)), dtype=np.float32), names)
    else:
        query = example_candidates(examples[0], 0)
    rankers = [ranker]
    if takes_evidence(ranker):
        text, seen = query.text or "query", np.ones(len(query.ids))
        query = replace(query, text=text)
        evidence = Evidence.from_cells([text] * len(query.ids), query.ids, seen, seen, _LATE)
        rankers.append(ranker.with_recent(evidence))
    rows = query.features
    frozen = np.frombuffer(rows.tobytes(), dtype=np.float32).reshape(rows.shape)
    for features in (rows, frozen):
        queries = to_query_set([query], [features], names)
        with suppress(KinrankError):
            for each in rankers:
                each.predict_with_novelty(queries)
            if has_weights(ranker):
                ranker.weights_with_fidelity(queries)
            if can_explain(ranker):
                ranker.explain(queries)


def example_candidates(queries: QuerySet, position: int) -> CandidateSet:
    """Return a stored query as a request would pass it."""
    query = queries[position : position + 1]
    given = {name: column[0] for name, column in query.query_columns.items()}
    text, vector = given.pop(TEXT, None), given.pop(VECTORS, None)
    columns = {name: float(value) for name, value in given.items() if np.asarray(value).dtype.kind in "iuf"}
    ids = range(query.n_rows) if query.doc_id is None else query.doc_id.tolist()
    return CandidateSet(
        [str(each) for each in ids],
        np.array(query.X),
        query.feature_names,
        vector,
        columns,
        None if text is None else str(text),
        {name: values.astype(np.str_).tolist() for name, values in query.doc_columns.items()},
    )


def _time(ranker: Ranker, query: QuerySet) -> float:
    start = time.perf_counter()
    ranker.predict_with_novelty(query)
    return time.perf_counter() - start
