"""What the page's template is told: texts and tables, ready to be set."""

from __future__ import annotations

from typing import Any

from kinrank.study.report import tables, words
from kinrank.study.report.findings import ChangeRatios, Findings, Kinship, NeighborCurve
from kinrank.study.report.groups import GroupGain, kind_gains, level_gains
from kinrank.study.report.svg import spoken

# Title of each section, and the part that it needs; None where it is always there.
_SECTIONS = {
    "measures": ("By every measure", None),
    "queries": ("Query by query", None),
    "map": ("The map of queries", "kinship"),
    "weights": ("What queries want", "heat"),
    "difficulty": ("Easy and hard queries", "levels"),
    "neighbors": ("How many neighbors", "curve"),
    "advance": ("Models learned in advance", "ratios"),
    "latency": ("Time per query", "latency"),
    "method": ("How this was measured", None),
}


def context_of(findings: Findings) -> dict[str, Any]:
    """Every word of the page by the name that the template has for it; parts that cannot be told are None."""
    comparison = findings.comparison
    parts = {
        **_kin(findings),
        "levels": tables.gain_table(level_gains(findings)) or None,
        "latency": _latency(findings),
    }
    return {
        **_answer(findings),
        **parts,
        "sections": [
            {"id": section, "title": title}
            for section, (title, part) in _SECTIONS.items()
            if part is None or parts[part] is not None
        ],
        "queries": f"{len(comparison.queries):,}",
        "tests": len(comparison.differences),
        "metric_tables": tables.metric_table(findings),
        "extremes": tables.extremes(findings),
        "map_note": _map_note(findings),
        "method": _method(findings),
    }


def _answer(findings: Findings) -> dict[str, Any]:
    """The first screen."""
    comparison, measure, paired = findings.comparison, findings.measure, findings.difference.paired
    return {
        "title": findings.title,
        "headline": words.headline(findings),
        "verdict": _verdict(findings),
        "evidence": words.evidence(findings),
        "provenance": words.provenance(findings.guard, len(comparison.queries)),
        "seen": findings.guard is not None and findings.guard.seen > 0,
        "points": words.points(findings),
        "measure": str(measure),
        "before": f"{comparison.baseline.evaluation[measure]:.4f}",
        "after": f"{findings.own.evaluation[measure]:.4f}",
        "baseline": comparison.baseline.name,
        "subject": findings.subject,
        "change": spoken(paired.mean_difference, "+.4f"),
        "interval": f"{paired.confidence:.0%} interval {words.between(*paired.interval)}",
        "record": {"wins": f"{paired.wins:,}", "ties": f"{paired.ties:,}", "losses": f"{paired.losses:,}"},
        "pace": _pace(findings),
    }


def _kin(findings: Findings) -> dict[str, Any]:
    """What only neighbors tell."""
    told: dict[str, Any] = dict.fromkeys(("kinship", "heat", "kind_table", "curve", "ratios"))
    kinship = findings.kinship
    if kinship is None:
        return told
    told["kinship"] = kinship
    if kinship.weights is not None:
        told["heat"] = tables.heat_table(findings, kinship, kinship.weights)
        told["kind_table"] = tables.gain_table(kind_gains(findings, kinship, kinship.weights))
    if kinship.curve is not None:
        told["curve"] = _curve(kinship, kinship.curve)
    if kinship.ratios is not None:
        told["ratios"] = _ratios(kinship.ratios)
    return told


def _verdict(findings: Findings) -> str:
    if findings.difference.p_holm >= words.LEVEL:
        return "unsure"
    return "gain" if findings.difference.paired.mean_difference > 0 else "loss"


def _pace(findings: Findings) -> dict[str, str] | None:
    times = {timing.name: timing.median for timing in findings.timings}
    if findings.subject not in times:
        return None
    baseline = findings.comparison.baseline.name
    note = f"{words.milliseconds(times[baseline])} with {baseline}" if baseline in times else "median"
    return {"own": words.milliseconds(times[findings.subject]), "note": note}


def _map_note(findings: Findings) -> str:
    if findings.kinship is None or len(findings.kinship.shown) == len(findings.names):
        return ""
    return (
        f"Shown are {len(findings.kinship.shown):,} of the {len(findings.names):,} queries: those that changed most, "
        "and a sample of the others."
    )


def _curve(kinship: Kinship, curve: NeighborCurve) -> dict[str, Any]:
    rows = [GroupGain(f"k = {k:,}", gain) for k, gain in curve.gains.items()]
    whose = (
        f"Tried on {curve.queries:,} validation queries."
        if curve.validation
        else f"Tried on {curve.queries:,} of the test queries, to show what k does; choosing k by this picture would "
        "make the test worthless."
    )
    note = f"{whose} The line at zero is one model for all queries, learned from all {kinship.judged:,} judged ones."
    return {"note": note, "table": tables.gain_table(rows)}


def _ratios(ratios: ChangeRatios) -> dict[str, Any]:
    first, second = ratios.by_mode["offline-1"], ratios.by_mode["offline-2"]
    rows = [(f"{k:,}", f"{first[k]:.3f}" if k in first else "not tried", f"{ratio:.3f}") for k, ratio in second.items()]
    return {"queries": f"{ratios.queries:,}", "table": rows}


def _latency(findings: Findings) -> list[dict[str, str]] | None:
    if not findings.timings:
        return None
    first = findings.timings[0]
    return [
        {
            "name": each.name,
            "median": words.milliseconds(each.median),
            "p95": words.milliseconds(each.p95),
            "ratio": f"{each.median / first.median:.1f} ×",
        }
        for each in findings.timings
    ]


def _method(findings: Findings) -> list[dict[str, str]]:
    """What the data are, how each entrant came about, and what the figures do not say."""
    queries = findings.comparison.queries
    entries = [
        {
            "name": "Test data",
            "text": f"{len(queries):,} queries, {queries.n_rows:,} judged candidates, {queries.n_features} features. "
            "If any setting was chosen on these queries, the figures are too good.",
        }
    ]
    for entrant in findings.comparison.entrants:
        settings = ", ".join(f"{key}={value!r}" for key, value in entrant.settings.items())
        text = f"{entrant.origin}{': ' if settings else ''}{settings}"
        if entrant.coverage is not None:
            covered = entrant.coverage
            text += (
                f"; {covered.absent_documents:,} judged candidates are not in the run and count as ranked last, "
                f"{covered.unjudged_top:.0%} of its first ten are not judged"
            )
        entries.append({"name": entrant.name, "text": text})
    return entries
