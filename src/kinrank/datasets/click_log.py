"""Simulated users who click on the results of judged queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

USERS = ("position", "cascade", "trust")
_START = 1_790_000_000  # seconds since 1970
_DAYS = 28


def simulate_clicks(
    queries: QuerySet,
    scores: ArrayLike,
    *,
    n_lists: float = 10,
    tail: float = 1.0,
    depth: int = 10,
    user: str = "position",
    severity: float = 1.0,
    attraction: tuple[float, float] = (0.1, 0.7),
    shuffle: float = 0.5,
    seed: int = 0,
) -> pa.Table:
    """Simulate the click log of a search engine that shows judged queries.

    Every list shows the first documents by score. `shuffle` moves the scores from list to list, as new documents, new
    versions of a ranker and personalization do in a real log.

    Parameters
    ----------
    queries
        Judged queries with document ids. Better grades attract more clicks.
    scores
        Scores of the search engine, one per row.
    n_lists
        Median number of lists shown per query.
    tail
        Standard deviation of the logarithm of the number of lists: 0 shows all queries equally often.
    depth
        Number of documents in a list.
    user
        How users examine a list:

        - "position": rank k is examined with probability (1 / k) ** severity, whatever else is in the list;
        - "cascade": from the top to the first click;
        - "trust": like "position", but users also take high ranks for relevance and click on bad documents there
          (Agarwal et al., 2019).
    severity
        How fast examination decreases with the rank.
    attraction
        Probability of a click on an examined document with the lowest and with the highest grade.
    shuffle
        Standard deviation of the change of a score from list to list, relative to that within the query; 0 freezes
        the ranking.
    seed
        Seed of the random generator.

    Returns
    -------
    pyarrow.Table
        One row per impression: query, session, document, rank, clicked, time. `kinrank.clicks` reads it.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> queries = make_two_camps(n_queries=3, n_docs=5)
    >>> log = simulate_clicks(queries, queries.X[:, 0], n_lists=4, tail=0, depth=2)
    >>> log.num_rows, log.column_names
    (24, ['query', 'session', 'document', 'rank', 'clicked', 'time'])
    """
    import pyarrow as pa

    if user not in USERS:
        raise ParameterError(f"user must be one of {', '.join(USERS)}, got {user!r}")
    if queries.doc_id is None:
        raise ParameterError("queries have no document ids: pass a QuerySet with doc_id")
    rng = np.random.default_rng(seed)
    lists = np.maximum(1, np.round(n_lists * np.exp(tail * rng.standard_normal(len(queries))))).astype(np.int64)
    engine = np.asarray(scores, dtype=np.float64)
    shown = [
        _draw_lists(rng, engine[start:stop], count, depth, shuffle) + start
        for start, stop, count in zip(queries.offsets[:-1], queries.offsets[1:], lists, strict=True)
    ]
    sizes = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in shown])
    row = np.concatenate([rows.ravel() for rows in shown])
    session = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    clicked = _click(rng, user, _attractiveness(queries, attraction)[row], rank, session, severity)
    texts = queries.query_columns.get(TEXT, queries.qid).astype(np.str_)
    time = _START + rng.integers(_DAYS * 86_400, size=len(sizes))
    return pa.table(
        {
            "query": pa.array(texts).take(pa.array(queries.query_of_row[row])),
            "session": pa.array(session),
            "document": pa.array(queries.doc_id.astype(np.str_)).take(pa.array(row)),
            "rank": pa.array(rank),
            "clicked": pa.array(clicked),
            "time": pa.array(time[session]).cast(pa.timestamp("s", tz="UTC")),
        }
    )


def _draw_lists(rng: np.random.Generator, scores: Float64, count: int, depth: int, shuffle: float) -> Int64:
    """Return the documents of each list of one query, best first."""
    spread = shuffle * (scores.std() or 1.0)
    keys = scores + spread * rng.standard_normal((count, len(scores)))
    return np.argsort(-keys, axis=1, kind="stable")[:, :depth]


def _attractiveness(queries: QuerySet, attraction: tuple[float, float]) -> Float64:
    low, high = attraction
    if not 0 <= low <= high <= 1:
        raise ParameterError(f"attraction must be two probabilities in ascending order, got {attraction}")
    gain = 2.0 ** queries.grades.astype(np.float64) - 1
    share: Float64 = low + (high - low) * gain / max(gain.max(), 1e-9)
    return share


def _click(
    rng: np.random.Generator, user: str, attractive: Float64, rank: Int64, session: Int64, severity: float
) -> NDArray[np.bool_]:
    examined = rng.random(len(rank)) < (1.0 / rank) ** severity
    liked = rng.random(len(rank)) < attractive
    if user == "position":
        return examined & liked
    if user == "trust":  # Eq. 5 of Agarwal et al. 2019: P(perceived as relevant | relevant or not, rank)
        perceived = np.where(liked, 1 - (np.minimum(rank, 20) + 1) / 100, 0.65 / np.minimum(rank, 10))
        return examined & (rng.random(len(rank)) < perceived)
    earlier: Int64 = np.cumsum(liked) - liked  # liked documents before this row, in all lists
    at_top: Int64 = np.repeat(earlier[rank == 1], np.bincount(session))
    first: NDArray[np.bool_] = liked & (earlier == at_top)
    return first
