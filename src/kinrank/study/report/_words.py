"""Sentences of a report: the result first, then the evidence."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np

from kinrank.measure import Measure
from kinrank.study.report._collect import LeakCheck, Report

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
