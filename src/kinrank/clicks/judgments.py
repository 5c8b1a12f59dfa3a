"""Judgments from clicks: how attractive each document is, how surely that is known, and the grades that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from scipy.special import betaincinv

from kinrank.arrays import Float64, Int64
from kinrank.clicks._counts import ClickCounts, Numbers
from kinrank.clicks.examination import Examination
from kinrank.data.files import PathLike, atomic_writer
from kinrank.data.tables import DATE
from kinrank.errors import DataError, ParameterError
from kinrank.parallel import Serial, Threads, map_ordered, usable_threads

MIN_STRENGTH = 20.0
_STEPS = 60
_CLOSE = 1e-12
_TINY = 1e-9
_LEAST = 0.5  # impressions of the widest interval
_PAIRS = 100_000  # in one call of the kernel


@dataclass(frozen=True, eq=False)
class Attractiveness:
    """P(click | examined) of each pair: an unbiased rate, and a Beta posterior."""

    rate: Float64
    """Clicks over looks, corrected for the offsets of ranks. Its expectation is the attractiveness, whatever the number
    of looks; it is noisy if there are few, and may be above 1 or below 0 then. Grades come from it; shape (pairs,).
    """
    looks: Float64
    """Expected number of examined impressions, relative to the first rank; shape (pairs,)."""
    mean: Float64
    low: Float64
    high: Float64
    """The posterior mean and the 90% interval. The mean is pulled to that of the prior if there are few looks; shape
    (pairs,).
    """
    weight: Float64
    """How much the clicks say, from 0 to 1: the looks as a share of them and the prior's. It depends on what was shown
    alone, and not on the clicks, so that weighing rates by it keeps them unbiased; shape (pairs,).
    """
    prior_mean: float
    prior_strength: float
    """The prior: the mean over documents, and the number of examined impressions that it counts as."""


def estimate_attractiveness(
    counts: ClickCounts, examination: Examination, *, strength: float = MIN_STRENGTH
) -> Attractiveness:
    r"""Estimate the attractiveness of every document of every query.

    The likelihood of a document's clicks is that of the model of examination, P(click at k) = slope_k α + offset_k. The
    prior is Beta with the mean over documents: each counts once, or as its looks if these are fewer than one. A mean
    over impressions would be that of the engine's favorites. The posterior is approximated by a Beta distribution at
    the mode of the likelihood times the prior, with as many impressions as its Fisher information; without correction
    it is exact. The interval covers the uncertainty of examination too: the variance of the estimate over the draws of
    its bootstrap adds to that of the posterior (the law of total variance). A document's own clicks hardly move the
    examination, so both are taken as independent.

    Parameters
    ----------
    counts
        The counts of a log.
    examination
        The model of examination.
    strength
        Impressions that the prior counts as. With the default, a document with 100 clicks in 100 impressions does not
        outrank one with 9,000 in 10,000.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank.clicks import read_clicks
    >>> from kinrank.clicks.examination import estimate_examination
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("query,session,document,rank,clicked\nalien,s1,d7,1,1\nalien,s2,d7,1,0\n")
    >>> counts = read_clicks([path])
    >>> found = estimate_attractiveness(counts, estimate_examination(counts, "none"), strength=2)
    >>> found.mean.round(6).tolist(), found.weight.tolist()
    ([0.5], [0.5])
    """
    if not strength > 0:
        raise ParameterError(f"strength must be above 0, got {strength}")
    shown = counts.examined if examination.model == "cascade" else counts.impressions
    slope, offset = examination.at(np.arange(counts.n_ranks + 1))
    known = slope[counts.rank] > 0
    looks = counts.by_pair(shown * slope[counts.rank])
    gained = counts.by_pair(np.where(known, np.minimum(counts.reward, shown) - offset[counts.rank] * shown, 0.0))
    if not looks.any():
        raise DataError("no impression at a rank whose examination is known: check the ranks of the log")
    rate = np.divide(gained, looks, out=np.zeros(len(looks)), where=looks > 0)
    counted = np.minimum(looks, 1.0)
    mean = float(np.clip(rate @ counted / counted.sum(), 1e-6, 1 - 1e-6))

    between = _variance_of_examination(counts, shown, examination, mean, strength)

    def part(start: int) -> Float64:
        pairs = counts.offsets[start : start + _PAIRS + 1]
        prior = strength * mean, strength * (1 - mean)
        alpha, size = _fit_pairs(pairs, counts.rank, shown, counts.reward, slope, offset, *prior)
        total = strength + size
        # A Beta distribution with n impressions has the variance α (1 - α) / (n + 1).
        total = 1 / (1 / (total + 1) + between[start : start + _PAIRS] / (alpha * (1 - alpha))) - 1
        total = np.maximum(total, _LEAST)
        # Most documents of a sparse log share their counts with many others, and quantiles take longest.
        means, totals, place = _distinct_pairs(alpha, total)
        a, b = totals * means, totals * (1 - means)
        low, high = betaincinv(a, b, 0.05)[place], betaincinv(a, b, 0.95)[place]
        return np.array([alpha, low, high])

    starts = range(0, counts.n_pairs, _PAIRS)
    threads = Threads(usable_threads()) if len(starts) > 1 else Serial()
    alpha, low, high = np.concatenate(list(map_ordered(threads, part, starts)), axis=1)
    return Attractiveness(rate, looks, alpha, low, high, looks / (strength + looks), mean, strength)


def _distinct_pairs(first: Float64, second: Float64) -> tuple[Float64, Float64, Int64]:
    """Return the distinct pairs of values, and the place of each given pair among them."""
    order = np.lexsort((second, first))
    ordered_first, ordered_second = first[order], second[order]
    differs = (np.diff(ordered_first) != 0) | (np.diff(ordered_second) != 0)
    is_new = np.append(True, differs)[: len(order)]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(is_new) - 1
    return ordered_first[is_new], ordered_second[is_new], place


def _variance_of_examination(
    counts: ClickCounts, shown: Numbers, examination: Examination, mean: float, strength: float
) -> Float64:
    """Return the variance of each pair's estimate over the draws of the examination."""
    total, squares = np.zeros(counts.n_pairs), np.zeros(counts.n_pairs)
    if examination.drawn is None:
        return total
    gained = np.minimum(counts.reward, shown)
    for slope, offset in examination.drawn:
        drawn = replace(examination, slope=slope, offset=offset)
        s, o = drawn.at(counts.rank)
        clicks = counts.by_pair(np.where(s > 0, gained - o * shown, 0.0))
        alpha = np.clip((strength * mean + clicks) / (strength + counts.by_pair(shown * s)), 0.0, 1.0)
        total += alpha
        squares += alpha**2
    n = len(examination.drawn)
    return np.maximum(squares - total**2 / n, 0.0) / (n - 1)


@numba.njit(cache=True, nogil=True)
def _fit_pairs(offsets, rank, shown, reward, slope, offset, a, b):  # type: ignore[no-untyped-def]
    """Return the mode of each pair's posterior, and the Fisher information of its clicks there.

    The information is in units of that of one examined impression. The derivative of the log posterior decreases in
    alpha; Newton's steps that leave the bracket of its zero are replaced by bisection.
    """
    n_pairs = len(offsets) - 1
    mode, size = np.empty(n_pairs), np.empty(n_pairs)
    for pair in range(n_pairs):
        low, high, alpha = 0.0, 1.0, a / (a + b)
        for _ in range(_STEPS):
            uphill, bend = a / alpha - b / (1 - alpha), a / alpha**2 + b / (1 - alpha) ** 2
            for i in range(offsets[pair], offsets[pair + 1]):
                s = slope[rank[i]]
                if s > 0:
                    p = min(max(s * alpha + offset[rank[i]], _TINY), 1 - _TINY)
                    gained = min(reward[i], shown[i])
                    uphill += s * (gained / p - (shown[i] - gained) / (1 - p))
                    bend += s * s * (gained / p**2 + (shown[i] - gained) / (1 - p) ** 2)
            if uphill > 0:
                low = alpha
            else:
                high = alpha
            step = alpha + uphill / bend
            if not low < step < high:
                step = (low + high) / 2
            done = abs(step - alpha) < _CLOSE
            alpha = step
            if done:
                break
        information = 0.0
        for i in range(offsets[pair], offsets[pair + 1]):
            s = slope[rank[i]]
            if s > 0:
                p = min(max(s * alpha + offset[rank[i]], _TINY), 1 - _TINY)
                information += shown[i] * s * s / (p * (1 - p))
        mode[pair] = min(max(alpha, _TINY), 1 - _TINY)
        size[pair] = information * mode[pair] * (1 - mode[pair])
    return mode, size


THRESHOLDS = (1.25, 1.75, 2.5)
"""Clicks over looks, relative to the mean over documents, at which the grade increases."""


def judgment_table(counts: ClickCounts, found: Attractiveness, thresholds: Sequence[float] = THRESHOLDS) -> pa.Table:
    """Return one row per query and document that `kinrank log` reads as a judgment.

    Queries that too few clients asked are left out: their texts would go from here into models, and people would see
    what one person asked.

    Parameters
    ----------
    counts
        The counts of a log.
    found
        The attractiveness of its documents.
    thresholds
        The grade is the number of thresholds that clicks over looks reach, relative to the mean over documents. Grades
        are not pulled to the mean if there are few looks: the weight alone says how little is known then.

    Returns
    -------
    pyarrow.Table
        qid, query, query.date (the day on which the query was first asked, if the log has times), doc_id, y (the
        grade), sample_weight, and the columns of details: info.rate (clicks over looks), info.attractiveness (pulled
        to the mean) with its 90% interval info.low to info.high, info.impressions, info.clicks.
    """
    cuts = np.asarray(thresholds, dtype=np.float64)
    if not len(cuts) or np.any(cuts <= 0) or np.any(np.diff(cuts) <= 0):
        raise ParameterError(f"thresholds must be positive and ascend, got {list(thresholds)}")
    impressions = counts.by_pair(counts.impressions)
    relative = found.rate / found.prior_mean
    query = counts.query.cast(pa.string())
    dates = {} if counts.dates is None else {DATE: counts.dates.take(counts.query.indices)}
    table = pa.table(
        {
            "qid": query,
            "query": query,
            **dates,
            "doc_id": counts.document.cast(pa.string()),
            "y": pa.array(np.searchsorted(cuts, relative, side="right").astype(np.float32)),
            "sample_weight": pa.array(found.weight.astype(np.float32)),
            "info.rate": pa.array(found.rate),
            "info.attractiveness": pa.array(found.mean),
            "info.low": pa.array(found.low),
            "info.high": pa.array(found.high),
            "info.impressions": pa.array(impressions.astype(np.int64)),
            "info.clicks": pa.array(counts.by_pair(counts.clicks).astype(np.int64)),
        }
    )
    kept = (impressions >= 1) & (found.weight > 0)
    if not kept.any():
        raise DataError("no document was shown at a known rank: pass a longer log")
    if counts.few is not None:
        kept &= ~counts.few
        left_out = len(np.unique(counts.query_codes[counts.few]))
        if left_out:
            counts.funnel.notes.append(f"{left_out:,} queries of too few clients are not judged (--set min_clients=N)")
    table = table.filter(pa.array(kept))
    if not len(table):
        raise DataError("no query was asked by enough clients to be judged: lower min_clients, or pass a longer log")
    return table


def write_judgments(table: pa.Table, path: PathLike) -> None:
    """Write a table of judgments as .parquet or .csv."""
    name = str(path)
    with atomic_writer(path) as stream:
        if name.endswith(".parquet"):
            pq.write_table(table, stream, compression="zstd")
        elif name.endswith(".csv"):
            pacsv.write_csv(table, stream)
        else:
            raise ParameterError(f"{name}: write judgments as NAME.parquet or NAME.csv")


def grade_counts(table: pa.Table) -> dict[int, int]:
    """Return the number of documents with each grade."""
    counted = pc.value_counts(table["y"])
    return {
        int(row["values"]): int(row["counts"]) for row in sorted(counted.to_pylist(), key=lambda row: row["values"])
    }
