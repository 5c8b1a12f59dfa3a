"""Reference implementations: each measure by its definition, one list at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, groupby, permutations, product
from statistics import fmean

from kinrank.measure import Measure


def slow_value(measure: Measure, scores: list[float], grades: list[int], ids: list[str]) -> float:
    """Return the value of one list; NaN if the query is excluded."""
    relevant_from = getattr(measure, "relevant_from", 1)
    if not any(grade >= relevant_from for grade in grades):
        return math.nan if measure.no_relevant == "skip" else measure.no_relevant
    define = DEFINITIONS[measure.name]
    return fmean(define(measure, [grades[i] for i in order]) for order in orders(measure.ties, scores, grades, ids))


def orders(ties: str, scores: list[float], grades: list[int], ids: list[str]) -> Iterator[list[int]]:
    """Yield the equally likely orders that the rule for ties allows."""
    rows = range(len(scores))
    if ties == "average":
        by_score = sorted(rows, key=lambda i: -scores[i])
        tied = [list(group) for _, group in groupby(by_score, key=lambda i: scores[i])]
        yield from (list(chain(*parts)) for parts in product(*map(permutations, tied)))
    elif ties == "doc_id":
        yield sorted(rows, key=lambda i: (scores[i], ids[i]), reverse=True)
    else:
        second = {"order": lambda i: i, "pessimistic": lambda i: grades[i], "optimistic": lambda i: -grades[i]}[ties]
        yield sorted(rows, key=lambda i: (-scores[i], second(i)))


def dcg(measure, ranked):
    total = 0.0
    if measure.short_lists == "zero" and measure.k and len(ranked) < measure.k:
        return 0.0
    for i, grade in enumerate(ranked[: measure.k], start=1):
        gain = {"exp2": 2**grade - 1, "linear": grade}[measure.gain]
        if measure.discount == "standard":
            total += gain / math.log2(i + 1)
        elif i <= 2:  # Geng et al. 2008, Eq. 4, and LETOR
            total += gain
        else:
            total += gain / math.log2(i)
    return total


def ndcg(measure, ranked):
    best = dcg(measure(short_lists="as_is"), sorted(ranked, reverse=True))
    return dcg(measure, ranked) / best


def mean_ndcg(measure, ranked):
    def at(k):
        one = measure @ k
        return ndcg(one, ranked)

    return fmean(at(k) for k in range(1, (measure.k or len(ranked)) + 1))


def precision(measure, ranked):
    return sum(grade >= measure.relevant_from for grade in ranked[: measure.k]) / (measure.k or len(ranked))


def average_precision(measure, ranked):
    hits = [grade >= measure.relevant_from for grade in ranked]
    found = [sum(hits[:i]) / i for i, hit in enumerate(hits, start=1) if hit and i <= (measure.k or math.inf)]
    return sum(found) / sum(hits)


def reciprocal_rank(measure, ranked):
    for i, grade in enumerate(ranked[: measure.k], start=1):
        if grade >= measure.relevant_from:
            return 1 / i
    return 0.0


def expected_reciprocal_rank(measure, ranked):
    total, still_reading = 0.0, 1.0
    for i, grade in enumerate(ranked[: measure.k], start=1):
        satisfied = (2**grade - 1) / 2**measure.max_grade
        total += still_reading * satisfied / i
        still_reading *= 1 - satisfied
    return total


DEFINITIONS = {
    "DCG": dcg,
    "NDCG": ndcg,
    "MeanNDCG": mean_ndcg,
    "P": precision,
    "AP": average_precision,
    "RR": reciprocal_rank,
    "ERR": expected_reciprocal_rank,
}
