"""Explanations of terms, which the page shows where a term is pointed at."""

from __future__ import annotations

from kinrank.measure import Measure

TERMS = {
    "baseline": "What the others are compared with: the ranker that was named first.",
    "change": "The mean over all queries of the new value minus that of the baseline. Positive is better.",
    "interval": "If the test were repeated with other queries of the same kind, 95 of 100 such intervals would contain "
    "the true change. An interval that contains zero leaves open whether there is a difference.",
    "p": "How probable a change at least this large would be if there were no difference, for this pair alone.",
    "holm": "The same, corrected for the number of tests of the table; up to 0.05 counts as significant.",
    "record": "Queries that the ranker ranks better than the baseline, equally well, and worse.",
    "time": "The median time from features to scores, for one query at a time.",
    "p95": "95 of 100 queries are ranked faster than this.",
    "global": "One linear model learned from all judged queries.",
    "importance": "How much of the differences between candidates comes from a feature: the size of its weight times "
    "its typical spread among the candidates of a query. All features of a query add up to 100%.",
    "direction": "Whether more of a feature lifts a candidate (↑) or lowers it (↓), all else being equal.",
    "ingredient": "Part of a ranker whose score is added to that of the others. The share is that of the sizes of all "
    "contributions to the scores of the test queries.",
    "k": "The number of judged queries that a query's own model is learned from.",
    "ratio": "How much the training set of a model learned in advance differs from the query's own: 0 if equal.",
    "grade": "How relevant a document is for the query: 0 is irrelevant, larger is better.",
}
"""Explanation by key."""

_MEASURES = {
    "Ndcg": "From 0 to 1: 1 if the most relevant documents come first, in the best order. Documents lower in the list "
    "count less.",
    "AveragePrecision": "From 0 to 1: the mean precision at the places of the relevant documents.",
    "ReciprocalRank": "1 divided by the place of the first relevant document.",
    "Precision": "The share of relevant documents among the first.",
    "ExpectedReciprocalRank": "The expected reciprocal of the place where a user who reads from the top is satisfied.",
}


def explain_measure(measure: Measure) -> str:
    """Return what a measure means.

    Examples
    --------
    >>> from kinrank.measure import RR
    >>> explain_measure(RR)
    '1 divided by the place of the first relevant document.'
    """
    own = _MEASURES.get(type(measure).__name__)
    return own or (type(measure).__doc__ or "").partition("\n")[0]
