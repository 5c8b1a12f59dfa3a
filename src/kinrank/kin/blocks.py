"""The blocks of a description: how they are named, and their values before scaling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import VECTORS, QueryVectors, align_vectors
from kinrank.errors import DataError, ParameterError

# --- parse the ``describe=`` argument ---------------------------------------------------------------------------------


Spec = str | Sequence[str] | Mapping[str, float]

BLOCKS = ("mean", "std", "max", "min", "size", "predictors", "text")
SUMMARIES = ("mean", "std", "max", "size", "predictors")
COLUMN = "column:"
_QUANTILE = re.compile(r"q(\d{1,2})\Z")

# Blocks of a few values count half as much as a block of features; the text, which adds information that the
# candidates do not have, counts double. Chosen on the validation queries of MSRD.
_WEIGHTS = {"size": 0.5, "predictors": 0.5, "text": 2.0}


def parse_blocks(spec: Spec, *, scored: bool) -> dict[str, float]:
    """Return block names and weights, in an order that does not depend on the input.

    Parameters
    ----------
    spec
        ``"mean"``, ``"summaries+text"``, a list of block names, or a mapping from block name to weight.
        ``"summaries"`` stands for mean, std, max, size and predictors.
    scored
        Whether there is a reference feature. Without one, ``"summaries"`` omits the predictors, and naming them
        is an error.

    Examples
    --------
    >>> parse_blocks("mean+text", scored=False)
    {'mean': 1.0, 'text': 2.0}
    >>> parse_blocks({"mean": 1, "column:words": 0.3}, scored=False)
    {'mean': 1.0, 'column:words': 0.3}
    """
    if isinstance(spec, str):
        spec = spec.split("+")
    given = spec if isinstance(spec, Mapping) else dict.fromkeys(spec)
    if not isinstance(spec, Mapping) and len(given) < len(spec):
        raise ParameterError(f"describe names a block twice, got {list(spec)!r}: name each block once")
    weights: dict[str, float] = {}
    for name, weight in given.items():
        if name == "summaries":
            members = SUMMARIES if scored else tuple(block for block in SUMMARIES if block != "predictors")
            members = tuple(member for member in members if member not in given)
            weights |= {member: default_weight(member) * (1.0 if weight is None else weight) for member in members}
        else:
            _check_name(name, scored)
            weights[name] = default_weight(name) if weight is None else float(weight)
    for name, value in weights.items():
        if not (np.isfinite(value) and value > 0):
            raise ParameterError(
                f"the weight of block {name!r} must be above 0, got {value}: use a positive weight or omit the block"
            )
    if not weights:
        raise ParameterError("describe names no block: give at least one, such as 'mean'")
    return {name: weights[name] for name in sorted(weights, key=_sort_key)}


def _sort_key(block: str) -> tuple[int, str]:
    """Return the sort key of a block, so that saved settings and arrays match."""
    return (BLOCKS.index(block) if block in BLOCKS else len(BLOCKS), block)


def default_weight(block: str) -> float:
    """Return the weight of a block if none is given."""
    return 0.5 if block.startswith(COLUMN) else _WEIGHTS.get(block, 1.0)


def parse_quantile(block: str) -> float | None:
    """Return the quantile of a block such as ``q25``, or None for other blocks.

    Examples
    --------
    >>> parse_quantile("q25")
    0.25
    """
    match = _QUANTILE.match(block)
    return int(match[1]) / 100 if match else None


def _check_name(name: str, scored: bool) -> None:
    if name == "predictors" and not scored:
        raise ParameterError("the block 'predictors' needs reference scores: set reference= to a feature")
    if (
        name not in BLOCKS
        and parse_quantile(name) is None
        and not (name.startswith(COLUMN) and len(name) > len(COLUMN))
    ):
        choices = ", ".join(repr(block) for block in ("summaries", *BLOCKS, "q25", "column:NAME"))
        raise ParameterError(f"unknown block {name!r} in describe: choose from {choices}")


# --- summary statistics of the candidates of each query ---------------------------------------------------------------


STATISTICS = ("mean", "std", "max", "min")
PREDICTORS = ("nqc", "wig", "gap")
_WIG_DEPTH = 5  # number of documents averaged by Zhou and Croft (2007)


@numba.njit(cache=True, nogil=True)
def top_rows(X, start, stop, reference, depth):  # type: ignore[no-untyped-def]
    """Return the rows of the top `depth` candidates by column `reference`, or the first rows if it is -1.

    Ties keep the given order, and candidates without a score come last.
    """
    n = stop - start
    if reference < 0 or n <= depth:
        return np.arange(start, min(stop, start + depth))
    keys = np.empty(n, dtype=np.float32)
    for i in range(n):
        score = X[start + i, reference]
        keys[i] = -score if np.isfinite(score) else np.inf
    return start + np.argsort(keys, kind="mergesort")[:depth]  # stable, so ties keep their order


@numba.njit(cache=True, nogil=True)
def statistics(X, offsets, reference, depth):  # type: ignore[no-untyped-def]
    """Return mean, std, max and min of every feature over each query's top documents; NaN if unknown.

    Only finite values count. The result has shape (queries, 4, features), in the order of `STATISTICS`.
    """
    n_features = X.shape[1]
    result = np.empty((len(offsets) - 1, 4, n_features))
    counts = np.empty(n_features)
    for q in range(len(offsets) - 1):
        rows = top_rows(X, offsets[q], offsets[q + 1], reference, depth)
        mean, std, high, low = result[q, 0], result[q, 1], result[q, 2], result[q, 3]
        mean[:], std[:], high[:], low[:], counts[:] = 0.0, 0.0, -np.inf, np.inf, 0.0
        for row in rows:
            for j in range(n_features):
                value = np.float64(X[row, j])
                if np.isfinite(value):
                    counts[j] += 1.0
                    mean[j] += value
                    high[j] = max(high[j], value)
                    low[j] = min(low[j], value)
        for j in range(n_features):
            if counts[j] == 0.0:
                mean[j], high[j], low[j] = np.nan, np.nan, np.nan
            else:
                mean[j] /= counts[j]
        for row in rows:  # second pass: the difference of two large sums would lose a small deviation
            for j in range(n_features):
                value = np.float64(X[row, j])
                if np.isfinite(value):
                    std[j] += (value - mean[j]) ** 2
        for j in range(n_features):
            std[j] = np.sqrt(std[j] / counts[j]) if counts[j] else np.nan
    return result


@numba.njit(cache=True, nogil=True)
def quantiles(X, offsets, reference, depth, share):  # type: ignore[no-untyped-def]
    """Return the quantile `share` of every feature over each query's top documents, interpolated linearly."""
    n_features = X.shape[1]
    result = np.full((len(offsets) - 1, n_features), np.nan)
    values = np.empty(depth)
    for q in range(len(offsets) - 1):
        rows = top_rows(X, offsets[q], offsets[q + 1], reference, depth)
        for j in range(n_features):
            n = 0
            for row in rows:
                if np.isfinite(X[row, j]):
                    values[n] = X[row, j]
                    n += 1
            if n:
                known = np.sort(values[:n])
                place = share * (n - 1)
                below = int(place)
                above = min(below + 1, n - 1)
                result[q, j] = known[below] + (place - below) * (known[above] - known[below])
    return result


@numba.njit(cache=True, nogil=True)
def predictors(X, offsets, reference, depth):  # type: ignore[no-untyped-def]
    """Return query performance predictors from the reference scores, in the order of `PREDICTORS`; NaN if undefined.

    nqc: standard deviation of the top scores over |mean score| (after Shtok et al. 2012).
    wig: mean of the top five minus the mean of the list, in standard deviations (after Zhou and Croft 2007).
    gap: the first score minus the second, in standard deviations.
    The papers normalize by the score of the whole collection; here the list replaces it, so no text is needed.
    """
    result = np.full((len(offsets) - 1, 3), np.nan)
    for q in range(len(offsets) - 1):
        scores = np.empty(offsets[q + 1] - offsets[q])
        n = 0
        for row in range(offsets[q], offsets[q + 1]):
            if np.isfinite(X[row, reference]):
                scores[n] = X[row, reference]
                n += 1
        if n < 2:
            continue
        ranked = np.sort(scores[:n])[::-1]
        mean, deviation = ranked.mean(), ranked.std()
        if mean != 0.0:
            result[q, 0] = ranked[:depth].std() / abs(mean)
        if deviation > 0.0:
            result[q, 1] = (ranked[:_WIG_DEPTH].mean() - mean) / deviation
            result[q, 2] = (ranked[0] - ranked[1]) / deviation
    return result


# --- features relative to the other candidates of the same query ------------------------------------------------------


_COUNTED = 256
"""Up to this many candidates, ranks are counted."""


def relative_features(X: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the z-score and the rank of each value within its query.

    Tied candidates share the mean of their ranks, so row order does not matter. Missing and infinite values get NaN
    for both and are ignored when the others are ranked.

    Returns
    -------
    float32 array of shape (rows, 2 features)
        All z-scores, then all ranks; the highest value has rank 0.
    """
    return _relative_features(np.ascontiguousarray(X, dtype=np.float32), offsets)  # type: ignore[no-any-return]


def standardize(scores: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standardize each column to mean 0 and standard deviation 1 within each query, so that models can be combined."""
    return _standardize(scores, offsets)  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def _standardize(scores, offsets):  # type: ignore[no-untyped-def]
    result = np.zeros(scores.shape)
    for q in range(len(offsets) - 1):
        start, stop = offsets[q], offsets[q + 1]
        for j in range(scores.shape[1]):
            mean = 0.0
            for row in range(start, stop):
                mean += scores[row, j] / (stop - start)
            variance = 0.0
            for row in range(start, stop):
                variance += (scores[row, j] - mean) ** 2 / (stop - start)
            deviation = np.sqrt(variance)
            for row in range(start, stop):
                # Scores that differ only by rounding count as equal; dividing would amplify noise.
                if deviation > 1e-12 * (1.0 + abs(scores[row, j])):
                    result[row, j] = (scores[row, j] - mean) / deviation
    return result


@numba.njit(cache=True, nogil=True)
def _relative_features(X, offsets):  # type: ignore[no-untyped-def]
    n_features = X.shape[1]
    result = np.full((X.shape[0], 2 * n_features), np.nan, dtype=np.float32)
    for q in range(len(offsets) - 1):
        start, stop = offsets[q], offsets[q + 1]
        rows = np.empty(stop - start, dtype=np.int64)
        values = np.empty(stop - start, dtype=np.float32)
        for j in range(n_features):
            n = 0
            for row in range(start, stop):
                if np.isfinite(X[row, j]):
                    rows[n], values[n] = row, X[row, j]
                    n += 1
            if n == 0:
                continue
            known = values[:n].astype(np.float64)
            mean = known.mean()
            deviation = np.sqrt(((known - mean) ** 2).mean())
            ranks = _counted_ranks(values[:n]) if n <= _COUNTED else _sorted_ranks(values[:n])
            for place in range(n):
                result[rows[place], j] = (known[place] - mean) / deviation if deviation > 0 else 0.0
                result[rows[place], n_features + j] = ranks[place]
    return result


@numba.njit(cache=True, nogil=True)
def _counted_ranks(values):  # type: ignore[no-untyped-def]
    """Compare each value with all others, several at a time: for few values that is faster than to sort them."""
    ranks = np.empty(len(values), dtype=np.float32)
    for place in range(len(values)):
        value = values[place]
        above, reached = np.int32(0), np.int32(0)
        for other in range(len(values)):
            above += np.int32(values[other] > value)
            reached += np.int32(values[other] >= value)
        ranks[place] = (above + reached - 1) / 2
    return ranks


@numba.njit(cache=True, nogil=True)
def _sorted_ranks(values):  # type: ignore[no-untyped-def]
    """Sort the values; ties are runs of equal ones."""
    ranks = np.empty(len(values), dtype=np.float32)
    order = np.argsort(-values)
    first = 0
    while first < len(values):
        last = first
        while last + 1 < len(values) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = (first + last) / 2
        first = last + 1
    return ranks


# --- raw values of each description block, before scaling, and a check that the row order gives no grades away --------


def raw_blocks(
    queries: QuerySet, blocks: Mapping[str, float], reference: int, depth: int, query_vectors: QueryVectors | None
) -> list[Float64]:
    """Return one array of shape (queries, values) per block; unknown values are NaN."""
    X = np.ascontiguousarray(queries.X)
    shared = statistics(X, queries.offsets, reference, depth) if not blocks.keys().isdisjoint(STATISTICS) else None
    arrays: list[Float64] = []
    for block in blocks:
        share = parse_quantile(block)
        if shared is not None and block in STATISTICS:
            arrays.append(shared[:, STATISTICS.index(block)])
        elif share is not None:
            arrays.append(quantiles(X, queries.offsets, reference, depth, share))
        elif block == "predictors":
            arrays.append(predictors(X, queries.offsets, reference, depth))
        elif block == "size":
            arrays.append(np.log1p(queries.sizes)[:, None])
        elif block == "text":
            arrays.append(text_vectors(queries, query_vectors))
        else:
            arrays.append(_column(queries, block.removeprefix(COLUMN)))
    return arrays


def block_names(block: str, width: int, feature_names: tuple[str, ...]) -> list[str]:
    """Return a name for each value of a block."""
    if block == "predictors":
        return [f"predictors({name})" for name in PREDICTORS]
    if block == "text":
        return [f"text({i})" for i in range(width)]
    if block in STATISTICS or parse_quantile(block) is not None:
        return [f"{block}({name})" for name in feature_names]
    return [block]


def text_vectors(queries: QuerySet, query_vectors: QueryVectors | None) -> Float64:
    """Return the vector of each query, as given or from the query column that holds it."""
    given = queries.query_columns.get(VECTORS) if query_vectors is None else query_vectors
    if given is None:
        raise DataError("the description has a text block: pass query_vectors=, one vector per query")
    return align_vectors(queries, given).astype(np.float64)


def _column(queries: QuerySet, name: str) -> Float64:
    if name not in queries.query_columns:
        column_names = ", ".join(map(repr, queries.query_columns)) or "none"
        raise DataError(f"the description uses the query column {name!r}, but the query columns are: {column_names}")
    try:
        values = queries.query_columns[name].astype(np.float64)
    except ValueError:
        raise DataError(f"query column {name!r} must be numeric to be part of the description: encode it") from None
    return np.where(np.isfinite(values), values, np.nan)[:, None]


MIN_QUERIES = 20
"""Number of queries that must have rows beyond the depth, and different grades."""
MIN_SORTED = 0.9
"""Share of these queries that must be sorted."""


def check_row_order(queries: QuerySet, depth: int) -> None:
    """Raise `DataError` if the first rows of longer queries are their best ones by grade.

    Their summary would describe the relevant candidates, in training and in a study alike, but not in a search.

    Examples
    --------
    >>> X, y = np.zeros((100, 1)), np.tile([1, 1, 0, 0], 25)
    >>> check_row_order(QuerySet.from_arrays(X, y, group=[4] * 25), depth=4)
    >>> check_row_order(QuerySet.from_arrays(X, y, group=[4] * 25), depth=3)
    Traceback (most recent call last):
    kinrank.errors.DataError: rows are sorted by grade in 25 of the 25 queries with more than 3 candidates, ...
    """
    if queries.y is None:
        return
    query, step = queries.query_of_row, np.diff(queries.grades)
    step[query[1:] != query[:-1]] = 0  # between two queries
    rises, falls = (np.bincount(query[1:][each], minlength=len(queries)) for each in (step > 0, step < 0))
    longer = (queries.sizes > depth) & (rises + falls > 0)
    in_order = longer & (rises == 0)
    if longer.sum() >= MIN_QUERIES and in_order.sum() >= MIN_SORTED * longer.sum():
        raise DataError(
            f"rows are sorted by grade in {in_order.sum():,} of the {longer.sum():,} queries with more than {depth} "
            "candidates, and the first ones describe a query: give rows in the engine's order, or name a feature that "
            "marks the top documents, such as reference='bm25'"
        )
