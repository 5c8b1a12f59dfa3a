"""Texts and tables for the template of the page, and explanations of terms."""

from __future__ import annotations

from typing import Any

from kinrank.data.queryset import QuerySet
from kinrank.measure import Measure
from kinrank.study.report import page_tables, words
from kinrank.study.report.contents import ChangeRatios, NeighborAnalysis, NeighborCurve, Report
from kinrank.study.report.groups import GroupGain, kind_gains, level_gains
from kinrank.study.report.ingredients import in_words
from kinrank.study.report.svg import format_number

# Title of each section, and the part it needs; None if it is always shown.
_SECTIONS = {
    "measures": ("All measures", None),
    "queries": ("Query by query", None),
    "map": ("Map of queries", "analysis"),
    "traffic": ("What choices gain by traffic", "traffic"),
    "kinds": ("Kinds of queries", "kind_table"),
    "weights": ("What decides the ranking", "heat"),
    "difficulty": ("Easy and hard queries", "levels"),
    "latency": ("Time per query", "latency"),
    "neighbors": ("For specialists: number of neighbors", "curve"),
    "advance": ("For specialists: models learned in advance", "ratios"),
    "method": ("How this was measured", None),
}


def context_of(report: Report) -> dict[str, Any]:
    """Return the template variables; parts without data are None."""
    comparison = report.comparison
    parts = {
        **_neighbor_parts(report),
        "levels": page_tables.gain_table(level_gains(report)) or None,
        "kind_table": page_tables.gain_table(kind_gains(report)) or None,
        "latency": _latency(report),
        "traffic": None if report.answer is None else report.answer.choices,
    }
    return {
        **_answer(report),
        **parts,
        "sections": [
            {"id": section, "title": title}
            for section, (title, part) in _SECTIONS.items()
            if part is None or parts[part] is not None
        ],
        "queries": f"{len(comparison.queries):,}",
        "tests": len(comparison.differences),
        "metric_tables": page_tables.metric_table(report),
        "extremes": page_tables.extremes(report),
        "titled": report.titles is not None,
        "by": report.by,
        "ingredients": in_words(report.ingredients),
        "terms": TERMS,
        "measure_terms": {str(measure): explain_measure(measure) for measure in comparison.measures},
        "map_note": _map_note(report),
        "method": _method(report),
    }


def _answer(report: Report) -> dict[str, Any]:
    """Return the variables of the summary."""
    comparison, measure, paired = report.comparison, report.measure, report.difference.paired
    return {
        "title": report.title,
        "headline": words.headline(report),
        "verdict": _verdict(report),
        "evidence": words.evidence(report),
        "provenance": words.provenance(report.leak_check, len(comparison.queries)),
        "seen": report.leak_check is not None and report.leak_check.seen > 0,
        "points": words.points(report),
        "measure": str(measure),
        "before": f"{comparison.baseline.evaluation[measure]:.4f}",
        "after": f"{report.subject_entrant.evaluation[measure]:.4f}",
        "baseline": comparison.baseline.name,
        "subject": report.subject,
        "change": format_number(paired.mean_difference, "+.4f"),
        "interval": f"{paired.confidence:.0%} interval {words.between(*paired.interval)}",
        "record": {"wins": f"{paired.wins:,}", "ties": f"{paired.ties:,}", "losses": f"{paired.losses:,}"},
        "pace": _pace(report),
    }


def _neighbor_parts(report: Report) -> dict[str, Any]:
    """Return the variables that need an entrant that learns from neighbors."""
    parts: dict[str, Any] = dict.fromkeys(("analysis", "heat", "curve", "ratios"))
    analysis = report.neighbors
    if analysis is None:
        return parts
    parts["analysis"] = analysis
    if analysis.shares is not None:
        parts["heat"] = page_tables.heat_table(report, analysis, analysis.shares)
    if analysis.curve is not None:
        parts["curve"] = _curve(analysis, analysis.curve)
    if analysis.ratios is not None:
        parts["ratios"] = _ratios(analysis.ratios)
    return parts


def _verdict(report: Report) -> str:
    verdict = report.claim.verdict
    return verdict if verdict in ("gain", "loss") else "unsure"


def _pace(report: Report) -> dict[str, str] | None:
    times = {timing.name: timing.median for timing in report.timings}
    if report.subject not in times:
        return None
    baseline = report.comparison.baseline.name
    note = f"{words.milliseconds(times[baseline])} with {baseline}" if baseline in times else "median"
    return {"own": words.milliseconds(times[report.subject]), "note": note}


def _map_note(report: Report) -> str:
    if report.neighbors is None or len(report.neighbors.shown) == len(report.names):
        return ""
    return (
        f"It shows {len(report.neighbors.shown):,} of the {len(report.names):,} queries: those that changed most and a "
        "sample of the others."
    )


def _curve(analysis: NeighborAnalysis, curve: NeighborCurve) -> dict[str, Any]:
    rows = [GroupGain(f"k = {k:,}", gain) for k, gain in curve.gains.items()]
    source = (
        f"Tried on {curve.queries:,} validation queries."
        if curve.validation
        else f"Tried on {curve.queries:,} of the test queries, to show the effect of k. Do not choose k by this chart: "
        "the test would no longer be valid."
    )
    note = f"{source} The line at zero is one linear model, fitted on all {analysis.n_judged:,} judged queries."
    return {"note": note, "table": page_tables.gain_table(rows)}


def _ratios(ratios: ChangeRatios) -> dict[str, Any]:
    first, second = ratios.by_mode["offline-1"], ratios.by_mode["offline-2"]
    rows = [(f"{k:,}", f"{first[k]:.3f}" if k in first else "not tried", f"{ratio:.3f}") for k, ratio in second.items()]
    return {"queries": f"{ratios.queries:,}", "table": rows}


def _latency(report: Report) -> list[dict[str, str]] | None:
    if not report.timings:
        return None
    first = report.timings[0]
    return [
        {
            "name": each.name,
            "median": words.milliseconds(each.median),
            "p95": words.milliseconds(each.p95),
            "ratio": f"{each.median / first.median:.1f} ×",
        }
        for each in report.timings
    ]


def _unjudged(queries: QuerySet) -> str:
    share = 1.0 - float(queries.judged.mean())
    return f"{share:.0%} of the candidates are not judged and count as grade 0. " if share else ""


def _method(report: Report) -> list[dict[str, str]]:
    """Return notes on the data, on each entrant, and on when the report was made."""
    queries = report.comparison.queries
    entries = [
        {
            "name": "Test data",
            "text": f"{len(queries):,} queries, {queries.n_rows:,} candidates, {queries.n_features} features. "
            f"{_unjudged(queries)}"
            "If any setting was chosen on these queries, the results are too optimistic.",
        }
    ]
    for entrant in report.comparison.entrants:
        settings = ", ".join(f"{key}={value!r}" for key, value in entrant.settings.items())
        text = f"{entrant.origin}{': ' if settings else ''}{settings}"
        if entrant.coverage is not None:
            covered = entrant.coverage
            text += (
                f"; {covered.absent_documents:,} judged candidates are missing from the run and ranked last, "
                f"{covered.unjudged_top:.0%} of its top 10 are not judged"
            )
        entries.append({"name": entrant.name, "text": text})
    entries += [{"name": use, "text": where} for use, where in report.sources.items()]
    return [*entries, {"name": "Made", "text": report.made}]


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
