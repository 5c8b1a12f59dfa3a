"""How often each rank is examined, from documents that were shown at several ranks of the same query.

A document keeps its attractiveness when its rank changes, so that its clicks at two ranks k and l compare the
examination of the ranks alone: with ``w = n_k n_l / (n_k + n_l)`` impressions to compare, the expected values of
``w c_k / n_k`` and ``w c_l / n_l`` have the ratio θ_k : θ_l (Agarwal et al. 2019, "Estimating position bias without
intrusive interventions"). Summed over documents, these are the results of contests between ranks, and the strengths in
the model of Bradley and Terry are the examination probabilities, up to a factor.
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.sparse.csgraph import connected_components

from kinrank.arrays import Float64, Int64
from kinrank.clicks.counts import ClickCounts

_GROUPS = 40  # of queries, each left out once by the jackknife
_MIN_CLICKS = 10.0  # of documents seen at both ranks, below which two ranks are not compared
DRAWS = 40
"""Draws of the bootstrap."""
_SWAP_STEPS = 10_000
_SWAP_TOLERANCE = 1e-9


def contests(counts: ClickCounts, group: Int64, n_groups: int) -> Float64:
    """Return the comparable clicks at rank k against rank l, of each group of queries.

    Parameters
    ----------
    counts
        The counts of a log.
    group
        The group of each pair.
    n_groups
        Number of groups.

    Returns
    -------
    array of shape (groups, ranks, ranks)
        Entry (g, k, l): clicks at rank k of documents that were also shown at rank l.
    """
    won = np.zeros((n_groups, counts.n_ranks, counts.n_ranks))
    _add_contests(counts.offsets, counts.rank, counts.impressions, counts.clicks, group, won)
    return won


@numba.njit(cache=True, nogil=True)
def _add_contests(offsets, rank, impressions, clicks, group, won):  # type: ignore[no-untyped-def]
    for pair in range(len(offsets) - 1):
        for i in range(offsets[pair], offsets[pair + 1]):
            for j in range(i + 1, offsets[pair + 1]):
                shown = impressions[i] + impressions[j]
                if impressions[i] > 0 and impressions[j] > 0:  # w c_i / n_i = n_j c_i / (n_i + n_j)
                    won[group[pair], rank[i] - 1, rank[j] - 1] += impressions[j] / shown * clicks[i]
                    won[group[pair], rank[j] - 1, rank[i] - 1] += impressions[i] / shown * clicks[j]


def connected_ranks(won: Float64) -> Int64:
    """Return the ranks (from 0) that are compared with the first rank, with enough clicks and in both directions.

    The strengths are finite only if the wins connect the ranks strongly: no group of ranks wins against the others
    without ever losing (Ford, 1957). A rank whose documents got all clicks elsewhere would have the strength 0.
    """
    enough = won + won.T >= _MIN_CLICKS
    _, part = connected_components(enough & (won > 0), directed=True, connection="strong")
    return np.flatnonzero(part == part[0])


def strengths(won: Float64) -> Float64:
    """Return the strengths of Bradley and Terry, the first of which is 1, by the MM steps of Hunter (2004)."""
    games = won + won.T
    wins = np.maximum(won.sum(axis=1), 1e-6)
    theta = np.ones(len(won))
    for _ in range(_SWAP_STEPS):
        new = wins / (games / (theta[:, None] + theta)).sum(axis=1)
        new /= new[0]
        done = np.abs(np.log(new / theta)).max() < _SWAP_TOLERANCE
        theta = new
        if done:
            break
    return theta


def jackknife(won: Float64) -> tuple[Float64, Float64]:
    """Return the strengths from all groups, and the standard errors of their logarithms by leaving groups out."""
    total = won.sum(axis=0)
    whole = strengths(total)
    left = np.log([strengths(total - part) for part in won])
    groups = len(won)
    deviation = np.sqrt((groups - 1) / groups * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    return whole, deviation


def bootstrap(won: Float64, n_draws: int = DRAWS, seed: int = 0) -> Float64:
    """Return strengths from groups of queries that are weighed at random, of shape (draws, ranks).

    The weights are exponential (the Bayesian bootstrap): none is 0, so that the strengths stay finite.
    """
    weights = np.random.default_rng(seed).exponential(size=(n_draws, len(won)))
    return np.array([strengths(total) for total in np.einsum("dg,gkl->dkl", weights, won)])


def groups_of_queries(counts: ClickCounts, n_groups: int = _GROUPS) -> tuple[Int64, int]:
    """Return the group of each pair; the queries are dealt out at random."""
    codes = counts.query_codes
    n_queries = int(codes[-1]) + 1
    n_groups = max(2, min(n_groups, n_queries))
    order = np.random.default_rng(0).permutation(n_queries)
    return (order % n_groups)[codes], n_groups
