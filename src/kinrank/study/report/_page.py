"""Render a report as one HTML file with its style and script inside, and write it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from typing import Any

import numpy as np

import kinrank
from kinrank.data.files import atomic_writer
from kinrank.data.queryset import QuerySet
from kinrank.measure import Measure
from kinrank.registry import import_extra
from kinrank.study.comparison import Comparison
from kinrank.study.report._collect import LeakCheck, Report, clean, collect

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SIZE = "###.# KB"  # placeholder for the file size, of the same length
_FEATURES = 30
_COUNTS = 0.005  # importance from which a feature has a direction
SHOWN = 10
"""Documents in each list."""
EXTREMES = 10
"""Number of queries that are listed with the largest gains, and with the largest losses."""

# Title of each section, and the part it needs; None if it is always shown.
_SECTIONS = {
    "measures": ("All measures", None),
    "queries": ("Query by query", None),
    "traffic": ("What choices gain by traffic", "traffic"),
    "features": ("What decides the ranking", "features"),
    "method": ("How this was measured", None),
}


def render(report: Report) -> str:
    """Return the page.

    All text from the data is escaped: names of queries, features and rankers are never markup. The content security
    policy of the page blocks everything except its own style sheet and script.
    """
    jinja2 = import_extra("jinja2", "report")
    here = files("kinrank.study.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    safe = environment.filters["safe"]
    page: str = template.render(
        **context_of(report),
        style=safe(style),
        script=safe(script),
        policy=content_policy(style, script),
        version=kinrank.__version__,
        size=_SIZE,
    )
    return page.replace(_SIZE, _size(len(page.encode("utf-8", "replace"))), 1)


def content_policy(style: str, script: str) -> str:
    """Return a policy that blocks all loads, and all inline code except the style and script with these hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _size(n_bytes: int) -> str:
    kilobytes = n_bytes / 1000
    return f"{kilobytes:.0f} KB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"


def write_report(
    path: str | os.PathLike[str], comparison: Comparison, subject: str | None = None, **settings: Any
) -> Report:
    """Write the report of a comparison.

    Parameters
    ----------
    path
        Output HTML file; overwritten if present.
    comparison
        Two or more entrants on the test queries, the baseline first.
    subject
        Name of the entrant that the report is about; by default the best after the baseline.
    **settings
        Parameters of `collect`: title, name_column, judged, titles, seed.

    Returns
    -------
    Report
        The contents of the report.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.study.study import Study
    >>> camps = make_two_camps(n_queries=90, seed=0)
    >>> study = Study.split(camps[:60], camps[60:])
    >>> comparison = study.compare([study.enter(name) for name in ("single", "knn(n_neighbors=10)")])
    >>> with TemporaryDirectory() as folder:
    ...     report = write_report(f"{folder}/report.html", comparison, judged=camps[:60])
    >>> report.difference.paired.losses
    0
    """
    report = collect(comparison, subject, **settings)
    write_page(path, report)
    return report


def write_page(path: str | os.PathLike[str], report: Report) -> int:
    """Write the page of a report atomically and return its size in bytes."""
    # A name may contain a lone surrogate, which UTF-8 cannot encode.
    page = render(report).encode("utf-8", "replace")
    with atomic_writer(path) as stream:
        stream.write(page)
    return len(page)


def context_of(report: Report) -> dict[str, Any]:
    """Return the template variables; parts without data are None."""
    comparison = report.comparison
    parts = {
        "traffic": None if report.answer is None else report.answer.choices,
        "features": feature_table(report),
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
        "metric_tables": metric_table(report),
        "extremes": extremes(report),
        "titled": report.titles is not None,
        "shares": report.shares,
        "terms": TERMS,
        "measure_terms": {str(measure): explain_measure(measure) for measure in comparison.measures},
        "method": _method(report),
    }


def _answer(report: Report) -> dict[str, Any]:
    """Return the variables of the summary."""
    comparison, measure, paired = report.comparison, report.measure, report.difference.paired
    return {
        "title": report.title,
        "headline": headline(report),
        "verdict": _verdict(report),
        "evidence": evidence(report),
        "provenance": provenance(report.leak_check, len(comparison.queries)),
        "warnings": report.warnings,
        "seen": report.leak_check is not None and report.leak_check.seen > 0,
        "points": points(report),
        "measure": str(measure),
        "before": f"{comparison.baseline.evaluation[measure]:.4f}",
        "after": f"{report.subject_entrant.evaluation[measure]:.4f}",
        "baseline": comparison.baseline.name,
        "subject": report.subject,
        "change": format_number(paired.mean_difference, "+.4f"),
        "interval": f"{paired.confidence:.0%} interval {between(*paired.interval)}",
        "record": {"wins": f"{paired.wins:,}", "ties": f"{paired.ties:,}", "losses": f"{paired.losses:,}"},
    }


def _verdict(report: Report) -> str:
    verdict = report.claim.verdict
    return verdict if verdict in ("gain", "loss") else "unsure"


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
    "global": "One linear model learned from all judged queries.",
    "importance": "How much of the differences between candidates comes from a feature: the size of its weight times "
    "its typical spread among the candidates of a query. All features of a query add up to 100%.",
    "direction": "Whether more of a feature lifts a candidate (↑) or lowers it (↓), all else being equal.",
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


def metric_table(report: Report) -> list[dict[str, Any]]:
    """Return the conventions of each measure, and a row per entrant."""
    comparison = report.comparison
    tables = []
    for measure in comparison.measures:
        rows = []
        for entrant in comparison.entrants:
            row: dict[str, Any] = {
                "name": entrant.name,
                "mean": f"{entrant.evaluation[measure]:.4f}",
                "subject": entrant.name == report.subject,
                **dict.fromkeys(("change", "interval", "p", "holm", "record"), ""),
            }
            if entrant is not comparison.baseline:
                difference = comparison.difference(entrant.name, measure)
                paired = difference.paired
                row |= {
                    "change": format_number(paired.mean_difference, "+.4f"),
                    "interval": between(*paired.interval),
                    "p": _number_of(paired.p),
                    "holm": _number_of(difference.p_holm),
                    "record": " / ".join(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses)),
                }
            rows.append(row)
        tables.append({"measure": str(measure), "conventions": conventions(measure), "rows": rows})
    return tables


def _number_of(p: float) -> str:
    return p_value(p).removeprefix("p = ").removeprefix("p ")


def extremes(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Return the queries with the largest gains and losses."""
    gains = np.nan_to_num(report.gains)
    before, after = (each.per_query(report.measure) for each in (report.comparison.baseline, report.subject_entrant))
    order = np.argsort(-gains, kind="stable")

    def row(query: int) -> dict[str, Any]:
        return {
            "name": report.names[query],
            "before": f"{before[query]:.2f}",
            "after": f"{after[query]:.2f}",
            "change": format_number(float(gains[query]), "+.2f"),
            "lists": None if report.titles is None else before_and_after(report, query, report.titles),
        }

    return {
        "won": [row(query) for query in order[:EXTREMES].tolist() if gains[query] > 0],
        "lost": [row(query) for query in order[::-1][:EXTREMES].tolist() if gains[query] < 0],
    }


def feature_table(report: Report) -> list[dict[str, str]] | None:
    """Return the importance of each feature in one model for all queries and, on average, in the queries' own.

    The most important come first. The mean is that of sizes, which queries of opposite directions do not cancel.
    """
    shares = report.shares
    if shares is None:
        return None
    features, sizes = report.comparison.queries.feature_names, np.abs(shares.by_query).mean(axis=0)
    mean = shares.by_query.mean(axis=0)
    return [
        {
            "feature": features[feature],
            "overall": _percent(abs(shares.overall[feature])),
            "way": _direction(shares.overall[feature], abs(shares.overall[feature])),
            "own": _percent(sizes[feature]),
            "own_way": _direction(mean[feature], sizes[feature]),
        }
        for feature in np.argsort(-sizes, kind="stable")[:_FEATURES].tolist()
    ]


def _direction(share: float, size: float) -> str:
    """Return the direction of a feature: up, down, mixed if queries disagree, "" if it does not count.

    Examples
    --------
    >>> _direction(0.2, 0.2), _direction(-0.2, 0.25), _direction(0.01, 0.2), _direction(0.001, 0.001)
    ('up', 'down', 'mixed', '')
    """
    if size < _COUNTS:
        return ""
    return "mixed" if abs(share) < size / 2 else "up" if share > 0 else "down"


def _percent(size: float) -> str:
    return f"{100 * float(size):.0f}"


def before_and_after(report: Report, query: int, titles: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the first documents of a query in the order of the baseline and of the subject."""
    queries = report.comparison.queries
    rows = np.arange(queries.offsets[query], queries.offsets[query + 1])
    before, after = (
        rows[np.argsort(-each.scores[rows], kind="stable")]
        for each in (report.comparison.baseline, report.subject_entrant)
    )
    places = {row: place for place, row in enumerate(before.tolist())}
    ids = queries.doc_id
    assert ids is not None  # `collect` refuses titles without document ids

    def entry(row: int, step: int | None) -> dict[str, Any]:
        document = str(ids[row])
        return {
            "title": clean(titles.get(document, document)),
            "grade": f"{queries.grades[row]:g}",
            "relevant": queries.grades[row] > 0,
            "move": "" if not step else f"{'▲' if step > 0 else '▼'} {abs(step)}",
            "way": "" if not step else "gain" if step > 0 else "loss",
        }

    return {
        "before": [entry(row, None) for row in before[:SHOWN].tolist()],
        "after": [entry(row, places[row] - place) for place, row in enumerate(after[:SHOWN].tolist())],
    }


# --- sentences: the result first, then the evidence -------------------------------------------------------------------


def format_number(value: float, spec: str) -> str:
    """Format a number with a real minus sign and without a sign for zero.

    Examples
    --------
    >>> format_number(-0.5, "+.2f"), format_number(0.0, "+.2f"), format_number(1200, ",.0f")
    ('\u22120.50', '0', '1,200')
    """
    return "0" if value == 0 and spec.startswith("+") else format(value, spec).replace("-", "\u2212")


def headline(report: Report) -> str:
    """Return what to use, with the gain and the names of both sides."""
    claim, answer, count = report.claim, report.answer, f"on {report.claim.paired.n:,} queries"
    change = f"{format_number(claim.paired.mean_difference, '+.4f')} {report.measure}"
    if claim.verdict != "gain":
        shown = "that is a loss" if claim.verdict == "loss" else "a gain is not shown"
        return f"Keep {claim.against}: {claim.name} has {change} {count}, {shown}"
    if answer is not None and answer.gain.name == claim.name and answer.verdict != "gain":
        return f"{claim.name}: {change} over {claim.against} {count}, but no gain over {answer.gain.against} is shown"
    return f"Use {claim.name}: {change} over {claim.against} {count}"


def evidence(report: Report) -> str:
    """Return the evidence for the result in one sentence."""
    claim, measure = report.claim, report.measure
    paired = claim.paired
    corrected = (
        "" if claim.p_holm is None else f"; {p_value(claim.p_holm)} after Holm's correction for {claim.n_claims} claims"
    )
    before, after = report.comparison.baseline.evaluation[measure], report.subject_entrant.evaluation[measure]
    return (
        f"{measure} is {before:.4f} with {report.comparison.baseline.name} and {after:.4f} with {report.subject}, "
        f"measured on {paired.n:,} test queries: {paired.confidence:.0%} interval {between(*paired.interval)}, "
        f"{p_value(paired.p)} (paired t-test{corrected})."
    )


def provenance(leak_check: LeakCheck | None, queries: int) -> str:
    """Return whether test queries were seen in training, in words."""
    if leak_check is None:
        return "The training queries are unknown, so whether the test queries are new was not checked."
    if not leak_check.unchecked:
        return _seen(leak_check, queries)
    unchecked = ", ".join(leak_check.unchecked)
    return f"{_seen(leak_check, queries)} The training queries of {unchecked} are unknown and were not checked."


def _seen(leak_check: LeakCheck, queries: int) -> str:
    if leak_check.seen:
        by = f" (by {', '.join(leak_check.seen_by)})" if leak_check.seen_by else ""
        return (
            f"{leak_check.seen:,} of the {queries:,} test queries were seen in training{by}: results on them do not "
            "carry over to new queries. Test on other queries."
        )
    unseen = "None of the test queries was seen in training"
    if leak_check.near is None:
        return f"{unseen} (compared by id only)."
    if not leak_check.near:
        return f"{unseen}, and none has a near-duplicate there."
    near = f"{unseen}; {leak_check.near:,} have a near-duplicate there"
    others = leak_check.others
    if others is None:
        return f"{near}."
    return (
        f"{near}. On the {others.n:,} others the change is {format_number(others.mean_difference, '+.4f')} "
        f"({others.confidence:.0%} interval {between(*others.interval)})."
    )


def points(report: Report) -> list[str]:
    """Return the other main results, one sentence each."""
    answer = "" if report.answer is None else _typeset(report.answer.text)
    near_and_far = (f"{_typeset(each.text)}." for each in report.near_and_far)
    return [sentence for sentence in (answer, *near_and_far, _balance(report)) if sentence]


def _typeset(text: str) -> str:
    """Return the text with minus signs in place of hyphens before numbers."""
    return re.sub(r"(?<![\w-])-(?=[\d.])", "−", text)


def _balance(report: Report) -> str:
    paired, changed = report.difference.paired, report.gains[report.gains != 0]
    if not paired.wins + paired.losses:
        return "No query changes."
    return (
        f"{paired.wins:,} queries win, {paired.losses:,} lose and {paired.ties:,} are unchanged. A query that changes "
        f"gains or loses {float(np.nanmean(np.abs(changed))):.3f} on average."
    )


def conventions(measure: Measure) -> str:
    """Return all conventions of a measure by name."""
    own = [field.name for field in fields(measure) if field.name not in ("k", "ties", "no_relevant")]
    return ", ".join(f"{name} {getattr(measure, name)}" for name in (*own, "ties", "no_relevant"))


def between(low: float, high: float) -> str:
    """Format an interval."""
    return f"{format_number(low, '+.4f')} to {format_number(high, '+.4f')}"


def p_value(p: float) -> str:
    """Format a p-value.

    Examples
    --------
    >>> p_value(0.034), p_value(2.13e-6), p_value(0.0)
    ('p = 0.034', 'p = 2.1 × 10⁻⁶', 'p < 10⁻³⁰⁰')
    """
    if p < 1e-300:
        return "p < 10⁻³⁰⁰"
    if p >= 0.001:
        return f"p = {p:.2g}"
    digits, _, power = f"{p:.1e}".partition("e")
    return f"p = {digits} × 10{str(int(power)).translate(_SUPERSCRIPT)}"
