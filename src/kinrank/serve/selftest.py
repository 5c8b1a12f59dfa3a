"""Whether a model does here what it did where it was written, before any user meets it."""

from __future__ import annotations

import statistics
import time

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import KinrankError, RefusedModelError
from kinrank.rankers.base import Ranker
from kinrank.store import Examples

_TOLERANCE = 1e-3  # of the spread of a score: float32 sums differ that little between machines


class SlowModelError(RefusedModelError):
    """A model that took too long, which may be the machine's fault."""


def self_test(ranker: Ranker, examples: Examples | None, deadline: float) -> bool:
    """Rank the stored examples; False where there are none, so that only the loading was tested.

    It also warms up: code is compiled and pages are read before the first user waits for them.

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
    RefusedModelError
        Where an example fails or scores otherwise than it did; a `SlowModelError` where it takes too long.
    """
    if examples is None:
        return False
    queries, expected = examples
    try:
        scores = ranker.scored(queries).scores
        seconds = [_timed(ranker, query) for query in queries]
    except KinrankError as error:
        raise RefusedModelError(f"it cannot rank its own examples: {error}") from error
    if not np.allclose(scores, expected, rtol=0, atol=_TOLERANCE * max(float(np.std(expected)), 1e-9)):
        worst = int(np.argmax(np.abs(scores - expected)))
        raise RefusedModelError(
            f"it scores its stored examples otherwise than when it was written: {scores[worst]:.6g} for "
            f"{expected[worst]:.6g}; write it again with the versions installed here"
        )
    if statistics.median(seconds) > deadline:
        raise SlowModelError(
            f"it takes {statistics.median(seconds) * 1000:.1f} ms for a query, the deadline is {deadline * 1000:.1f} ms"
        )
    return True


def _timed(ranker: Ranker, query: QuerySet) -> float:
    start = time.perf_counter()
    ranker.scored(query)
    return time.perf_counter() - start
