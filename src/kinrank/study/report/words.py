"""The report in words: the answer first, then what stands behind it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from kinrank.measure import Measure, holm
from kinrank.rankers.capabilities import capabilities_of
from kinrank.study.report.contents import LeakCheck, NeighborAnalysis, NeighborCurve, Report
from kinrank.study.report.groups import kind_gains
from kinrank.study.report.projection import Kind
from kinrank.study.report.svg import format_number

LEVEL = 0.05
"""The corrected p-value below which a difference is called one."""

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def headline(report: Report) -> str:
    """The answer."""
    change, measure = report.difference.paired.mean_difference, report.measure
    # A ranker that learns per query stands for its kind; any other has its name only.
    per_query = capabilities_of(report.own.ranker).explains
    if report.difference.p_holm >= LEVEL:
        who = "per-query ranking" if per_query else report.subject
        return f"No gain to rely on: {who} changes {measure} by {format_number(change, '+.4f')}"
    who = "Per-query ranking" if per_query else report.subject
    return (
        f"{who} gains {format_number(change, '+.4f')} {measure}"
        if change > 0
        else f"{who} loses {-change:.4f} {measure}"
    )


def evidence(report: Report) -> str:
    """What the answer rests on, in one sentence."""
    difference, measure = report.difference, report.measure
    low, high = difference.paired.interval
    tests = len(report.comparison.differences)
    corrected = f", corrected by Holm for {tests} tests" if tests > 1 else ""
    before, after = report.comparison.baseline.evaluation[measure], report.own.evaluation[measure]
    return (
        f"{measure} is {before:.4f} with {report.comparison.baseline.name} and {after:.4f} with {report.subject}, "
        f"measured on {difference.paired.n:,} test queries: {difference.paired.confidence:.0%} interval "
        f"{between(low, high)}, {p_value(difference.p_holm)} (paired t-test{corrected})."
    )


def provenance(leak_check: LeakCheck | None, queries: int) -> str:
    """Whether the test queries are new to what was learned from."""
    if leak_check is None:
        return "The training queries are unknown, so whether the test queries are new was not checked."
    if not leak_check.unchecked:
        return _novelty(leak_check, queries)
    unchecked = ", ".join(leak_check.unchecked)
    return f"{_novelty(leak_check, queries)} The training queries of {unchecked} are unknown and were not checked."


def _novelty(leak_check: LeakCheck, queries: int) -> str:
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
    """What else a hurried reader should know, a sentence each."""
    said = [_balance(report), _kinds(report)]
    if report.kinship is not None and report.kinship.curve is not None:
        told = _neighbors(report.kinship, report.kinship.curve)
        said.append(told if report.kinship.whole else f"{told} (Of the part that learns from neighbors.)")
    said.append(_cost(report))
    return [each for each in said if each]


def _balance(report: Report) -> str:
    paired, changed = report.difference.paired, report.gains[report.gains != 0]
    if not paired.wins + paired.losses:
        return "No query changes."
    return (
        f"{paired.wins:,} queries win, {paired.losses:,} lose and {paired.ties:,} stay as they were. A query that "
        f"changes gains or loses {float(np.nanmean(np.abs(changed))):.3f} on average."
    )


def _kinds(report: Report) -> str:
    if report.kinship is None or report.kinship.weights is None:
        return ""
    gains = kind_gains(report, report.kinship, report.kinship.weights)
    corrected = holm([each.gain.p for each in gains])
    sure = [i for i, p in enumerate(corrected) if p < LEVEL and gains[i].gain.mean_difference > 0]
    grouped = "Grouped by what decides their ranking"
    if not sure:
        return f"{grouped}, none of {len(gains)} kinds of queries has a gain to rely on."
    best = max(sure, key=lambda i: gains[i].gain.mean_difference)
    kind = report.kinship.weights.kinds[best]
    such = ", ".join(f"“{name}”" for name in examples(report, report.kinship, kind, 3))
    return (
        f"{grouped}, the {len(kind.members):,} queries of kind {kind.letter} gain most "
        f"({format_number(gains[best].gain.mean_difference, '+.4f')} on average): queries such as {such}."
    )


def examples(report: Report, kinship: NeighborAnalysis, kind: Kind, n: int = 4) -> list[str]:
    """Some of the more typical queries of a kind, spread, since the very typical ones are often all alike."""
    typical = kind.members[: max(n, len(kind.members) // 3)]
    places = np.unique(np.linspace(0, len(typical) - 1, n).astype(int))
    return [report.names[query] for query in kinship.shown[typical[places]].tolist()]


def _neighbors(kinship: NeighborAnalysis, curve: NeighborCurve) -> str:
    best = max(curve.gains, key=lambda k: curve.gains[k].mean_difference)
    gain = curve.gains[best].mean_difference
    if curve.gains[best].interval[0] <= 0:
        return f"No k gains reliably over one model for all on {curve.queries:,} {_whose(curve)} queries."
    own = "the k in use" if best == kinship.n_neighbors else f"{kinship.n_neighbors:,} are in use"
    return (
        f"Of the numbers of neighbors tried on {curve.queries:,} {_whose(curve)} queries, k = {best:,} gains most "
        f"over one model for all ({format_number(gain, '+.4f')}): {own}."
    )


def _whose(curve: NeighborCurve) -> str:
    return "validation" if curve.validation else "test"


def _cost(report: Report) -> str:
    times = {timing.name: timing.median for timing in report.timings}
    baseline = report.comparison.baseline.name
    if report.subject not in times:
        return ""
    said = f"Ranking one query takes {milliseconds(times[report.subject])} with {report.subject}"
    if baseline not in times:
        return f"{said}."
    return f"{said}, {milliseconds(times[baseline])} with {baseline} (medians)."


def conventions(measure: Measure) -> str:
    """Every convention of a measure by name.

    Examples
    --------
    >>> from kinrank.measure import AP
    >>> conventions(AP)
    'relevant_from 1, ties order, no_relevant 0'
    """
    own = [field.name for field in fields(measure) if field.name not in ("k", "ties", "no_relevant")]
    return ", ".join(f"{name} {getattr(measure, name)}" for name in (*own, "ties", "no_relevant"))


def between(low: float, high: float) -> str:
    """An interval."""
    return f"{format_number(low, '+.4f')} to {format_number(high, '+.4f')}"


def p_value(p: float) -> str:
    """A p-value as one reads it aloud.

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
    """A time with two digits that mean something.

    Examples
    --------
    >>> milliseconds(0.0523), milliseconds(12.34)
    ('0.05 ms', '12 ms')
    """
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"
