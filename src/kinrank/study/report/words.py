"""The report in words: the answer first, then what stands behind it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from kinrank.measure import Measure, holm
from kinrank.rankers.capabilities import capabilities_of
from kinrank.study.report.findings import Findings, Guard, Kinship, NeighborCurve
from kinrank.study.report.groups import kind_gains
from kinrank.study.report.landscape import Kind
from kinrank.study.report.svg import spoken

LEVEL = 0.05
"""The corrected p-value below which a difference is called one."""

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def headline(findings: Findings) -> str:
    """The answer."""
    change, measure = findings.difference.paired.mean_difference, findings.measure
    # A ranker that learns per query stands for its kind; any other has its name only.
    per_query = capabilities_of(findings.own.ranker).explains
    if findings.difference.p_holm >= LEVEL:
        who = "per-query ranking" if per_query else findings.subject
        return f"No gain to rely on: {who} changes {measure} by {spoken(change, '+.4f')}"
    who = "Per-query ranking" if per_query else findings.subject
    return f"{who} gains {spoken(change, '+.4f')} {measure}" if change > 0 else f"{who} loses {-change:.4f} {measure}"


def evidence(findings: Findings) -> str:
    """What the answer rests on, in one sentence."""
    difference, measure = findings.difference, findings.measure
    low, high = difference.paired.interval
    tests = len(findings.comparison.differences)
    corrected = f", corrected by Holm for {tests} tests" if tests > 1 else ""
    before, after = findings.comparison.baseline.evaluation[measure], findings.own.evaluation[measure]
    return (
        f"{measure} is {before:.4f} with {findings.comparison.baseline.name} and {after:.4f} with {findings.subject}, "
        f"measured on {difference.paired.n:,} test queries: {difference.paired.confidence:.0%} interval "
        f"{between(low, high)}, {p_value(difference.p_holm)} (paired t-test{corrected})."
    )


def provenance(guard: Guard | None, queries: int) -> str:
    """Whether the test queries are new to what was learned from."""
    if guard is None:
        return "The training queries are unknown, so whether the test queries are new was not checked."
    if not guard.unchecked:
        return _novelty(guard, queries)
    return f"{_novelty(guard, queries)} What {', '.join(guard.unchecked)} learned from is not known, and not checked."


def _novelty(guard: Guard, queries: int) -> str:
    if guard.seen:
        knowing = f" (known to {', '.join(guard.knowing)})" if guard.knowing else ""
        return (
            f"{guard.seen:,} of the {queries:,} test queries are among those that were learned from{knowing}: "
            "what is measured on them says nothing about new queries. Test on others."
        )
    said = "None of the test queries is among those that were learned from"
    if guard.near is None:
        return f"{said} (by id; nothing else was compared)."
    if not guard.near:
        return f"{said}, nor anything very like one."
    said = f"{said}; {guard.near:,} have something very like them there"
    if guard.others is None:
        return f"{said}."
    return (
        f"{said}. On the {guard.others.n:,} others the change is {spoken(guard.others.mean_difference, '+.4f')} "
        f"({guard.others.confidence:.0%} interval {between(*guard.others.interval)})."
    )


def points(findings: Findings) -> list[str]:
    """What else a hurried reader should know, a sentence each."""
    said = [_balance(findings), _kinds(findings)]
    if findings.kinship is not None and findings.kinship.curve is not None:
        told = _neighbors(findings.kinship, findings.kinship.curve)
        said.append(told if findings.kinship.whole else f"{told} (Of the part that learns from neighbors.)")
    said.append(_cost(findings))
    return [each for each in said if each]


def _balance(findings: Findings) -> str:
    paired, changed = findings.difference.paired, findings.gains[findings.gains != 0]
    if not paired.wins + paired.losses:
        return "No query changes."
    return (
        f"{paired.wins:,} queries win, {paired.losses:,} lose and {paired.ties:,} stay as they were. A query that "
        f"changes gains or loses {float(np.nanmean(np.abs(changed))):.3f} on average."
    )


def _kinds(findings: Findings) -> str:
    if findings.kinship is None or findings.kinship.weights is None:
        return ""
    gains = kind_gains(findings, findings.kinship, findings.kinship.weights)
    corrected = holm([each.gain.p for each in gains])
    sure = [i for i, p in enumerate(corrected) if p < LEVEL and gains[i].gain.mean_difference > 0]
    grouped = "Grouped by what decides their ranking"
    if not sure:
        return f"{grouped}, none of {len(gains)} kinds of queries has a gain to rely on."
    best = max(sure, key=lambda i: gains[i].gain.mean_difference)
    kind = findings.kinship.weights.kinds[best]
    such = ", ".join(f"“{name}”" for name in examples(findings, findings.kinship, kind, 3))
    return (
        f"{grouped}, the {len(kind.members):,} queries of kind {kind.letter} gain most "
        f"({spoken(gains[best].gain.mean_difference, '+.4f')} on average): queries such as {such}."
    )


def examples(findings: Findings, kinship: Kinship, kind: Kind, n: int = 4) -> list[str]:
    """Some of the more typical queries of a kind, spread, since the very typical ones are often all alike."""
    typical = kind.members[: max(n, len(kind.members) // 3)]
    places = np.unique(np.linspace(0, len(typical) - 1, n).astype(int))
    return [findings.names[query] for query in kinship.shown[typical[places]].tolist()]


def _neighbors(kinship: Kinship, curve: NeighborCurve) -> str:
    best = max(curve.gains, key=lambda k: curve.gains[k].mean_difference)
    gain = curve.gains[best].mean_difference
    if curve.gains[best].interval[0] <= 0:
        return f"No k gains reliably over one model for all on {curve.queries:,} {_whose(curve)} queries."
    own = "the k in use" if best == kinship.n_neighbors else f"{kinship.n_neighbors:,} are in use"
    return (
        f"Of the numbers of neighbors tried on {curve.queries:,} {_whose(curve)} queries, k = {best:,} gains most "
        f"over one model for all ({spoken(gain, '+.4f')}): {own}."
    )


def _whose(curve: NeighborCurve) -> str:
    return "validation" if curve.validation else "test"


def _cost(findings: Findings) -> str:
    times = {timing.name: timing.median for timing in findings.timings}
    baseline = findings.comparison.baseline.name
    if findings.subject not in times:
        return ""
    said = f"Ranking one query takes {milliseconds(times[findings.subject])} with {findings.subject}"
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
    return f"{spoken(low, '+.4f')} to {spoken(high, '+.4f')}"


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
