"""Self-test of a model before it is put into use: it must reproduce its stored scores, in time."""

from __future__ import annotations

import statistics
import time

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import KinrankError, RejectedModelError
from kinrank.rankers.base import Ranker
from kinrank.store import Examples

_TOLERANCE = 1e-3  # in standard deviations of the scores: float32 sums differ that little between machines


class SlowModelError(RejectedModelError):
    """The model took too long, possibly because the machine was busy."""


def self_test(ranker: Ranker, examples: Examples | None, deadline: float) -> bool:
    """Rank the stored examples. Return False if there are none.

    This also warms the model up: code is compiled and pages are read before the first request.

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
        An example fails or its scores differ; `SlowModelError` if the examples take too long.
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
        raise SlowModelError(
            f"the model takes {median * 1000:.1f} ms per query, the deadline is {deadline * 1000:.1f} ms"
        )
    return True


def _time(ranker: Ranker, query: QuerySet) -> float:
    start = time.perf_counter()
    ranker.predict_with_novelty(query)
    return time.perf_counter() - start
