"""Sentences of a report: the result first, then the evidence."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np

from kinrank.measure import Measure, holm
from kinrank.study.answer import LEVEL
from kinrank.study.report.contents import LeakCheck, NeighborAnalysis, NeighborCurve, Report
from kinrank.study.report.groups import kind_gains
from kinrank.study.report.ingredients import in_words
from kinrank.study.report.shares import Kind
from kinrank.study.report.svg import format_number

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def headline(report: Report) -> str:
    """Return the result in one line, with the names of both sides."""
    return _typeset(report.claim.sentence(str(report.measure)))


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
    sentences = [answer, _balance(report), ingredients(report), _kinds(report)]
    if report.neighbors is not None and report.neighbors.curve is not None:
        sentence = _best_k(report.neighbors, report.neighbors.curve)
        part = "" if report.neighbors.whole else " (This is the part that learns from neighbors.)"
        sentences.append(f"{sentence}{part}")
    sentences.append(_cost(report))
    return [sentence for sentence in sentences if sentence]


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


def ingredients(report: Report) -> str:
    """Return how much each ingredient of the subject counts; empty if it has only one."""
    parts = in_words(report.ingredients)
    if not parts:
        return ""
    return f"What counts in {report.subject}: {'; '.join(f'{name} {share}' for name, share in parts)}."


def _kinds(report: Report) -> str:
    gains = kind_gains(report)
    if not gains:
        return ""
    corrected = holm([each.gain.p for each in gains])
    sure = [i for i, p in enumerate(corrected) if p < LEVEL and gains[i].gain.mean_difference > 0]
    grouped = f"Grouped by {report.by or 'the features that decide their ranking'}"
    if not sure:
        return f"{grouped}, none of {len(gains)} kinds of queries has a significant gain."
    best = max(sure, key=lambda i: gains[i].gain.mean_difference)
    return (
        f"{grouped}, the {gains[best].gain.n:,} queries of {gains[best].label} gain most "
        f"({format_number(gains[best].gain.mean_difference, '+.4f')} on average)."
    )


def examples(report: Report, analysis: NeighborAnalysis, kind: Kind, n: int = 4) -> list[str]:
    """Return names from the typical third of a kind, spread out because the most typical ones are often alike."""
    typical = kind.members[: max(n, len(kind.members) // 3)]
    positions = np.unique(np.linspace(0, len(typical) - 1, n).astype(int))
    return [report.names[query] for query in analysis.shown[typical[positions]].tolist()]


def _best_k(analysis: NeighborAnalysis, curve: NeighborCurve) -> str:
    best = max(curve.gains, key=lambda k: curve.gains[k].mean_difference)
    gain = curve.gains[best].mean_difference
    if curve.gains[best].interval[0] <= 0:
        return f"No k gains significantly over one linear model on {curve.queries:,} {_which(curve)} queries."
    own = "the k in use" if best == analysis.n_neighbors else f"k = {analysis.n_neighbors:,} is in use"
    return (
        f"On {curve.queries:,} {_which(curve)} queries, k = {best:,} gains most over one linear model "
        f"({format_number(gain, '+.4f')}); {own}."
    )


def _which(curve: NeighborCurve) -> str:
    return "validation" if curve.validation else "test"


def _cost(report: Report) -> str:
    times = {timing.name: timing.median for timing in report.timings}
    baseline = report.comparison.baseline.name
    if report.subject not in times:
        return ""
    takes = f"Ranking one query takes {milliseconds(times[report.subject])} with {report.subject}"
    if baseline not in times:
        return f"{takes}."
    return f"{takes}, {milliseconds(times[baseline])} with {baseline} (medians)."


def conventions(measure: Measure) -> str:
    """Return all conventions of a measure by name.

    Examples
    --------
    >>> from kinrank.measure import AP
    >>> conventions(AP)
    'relevant_from 1, ties order, no_relevant 0'
    """
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


def milliseconds(value: float) -> str:
    """Format a time with about two significant digits.

    Examples
    --------
    >>> milliseconds(0.0523), milliseconds(12.34)
    ('0.05 ms', '12 ms')
    """
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"
