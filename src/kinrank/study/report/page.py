"""Findings as one HTML file that loads nothing: style, script, pictures and data are all inside."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

import numpy as np

import kinrank
from kinrank.registry import import_extra
from kinrank.study.report import charts, tables, words
from kinrank.study.report.findings import Findings, Kinship, NeighborCurve
from kinrank.study.report.querymap import draw_kinds, draw_map, map_data
from kinrank.study.report.svg import spoken

_SECTIONS = {
    "measures": "By every measure",
    "queries": "Query by query",
    "map": "The map of queries",
    "weights": "What queries want",
    "difficulty": "Easy and hard queries",
    "neighbors": "How many neighbors",
    "advance": "Models learnt in advance",
    "latency": "Time per query",
    "method": "How this was measured",
}
_SIZE = "###.# KB"  # stands where the size of the file will be, and is as long


def render(findings: Findings) -> str:
    """The whole page.

    Whatever the data says is escaped: names of queries, features and rankers are never markup. The page's own policy
    forbids the browser to load, send or run anything but the one style sheet and script it was written with.
    """
    jinja2 = import_extra("jinja2", "report")
    here = files("kinrank.study.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    safe = environment.filters["safe"]
    context = _context(findings)
    figures = {name: safe(markup) for name, markup in _figures(findings).items()}
    data = "" if findings.kinship is None else _json(map_data(findings, findings.kinship))
    page: str = template.render(
        **context,
        figures=figures,
        style=safe(style),
        script=safe(script),
        data=safe(data),
        policy=_policy(style, script),
        version=kinrank.__version__,
        size=_SIZE,
    )
    return page.replace(_SIZE, _size(len(page.encode("utf-8", "replace"))), 1)


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and nothing inline runs but what has these hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _size(n_bytes: int) -> str:
    kilobytes = n_bytes / 1000
    return f"{kilobytes:.0f} KB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"


def _context(findings: Findings) -> dict[str, Any]:
    comparison, measure, kinship = findings.comparison, findings.measure, findings.kinship
    paired = findings.difference.paired
    weights = None if kinship is None else kinship.weights
    curve = None if kinship is None or kinship.curve is None else _curve(kinship, kinship.curve)
    ratios = None if kinship is None or kinship.ratios is None else _ratios(kinship)
    latency = _latency(findings)
    present = {
        "map": kinship,
        "weights": weights,
        "neighbors": curve,
        "advance": ratios,
        "latency": latency,
    }
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
        "sections": [{"id": i, "title": t} for i, t in _SECTIONS.items() if present.get(i, True) is not None],
        "queries": f"{len(comparison.queries):,}",
        "tests": len(comparison.differences),
        "metric_tables": tables.metric_table(findings),
        "extremes": tables.extremes(findings),
        "kinship": kinship,
        "map_note": _map_note(findings),
        "heat": None if kinship is None or weights is None else tables.heat_table(findings, kinship, weights),
        "kind_table": []
        if kinship is None or weights is None
        else tables.row_table(tables.kind_rows(findings, kinship, weights)),
        "level_table": tables.row_table(tables.level_rows(findings)),
        "curve": curve,
        "ratios": ratios,
        "latency": latency,
        "method": _method(findings),
    }


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
    rows = [charts.Row(f"k = {k:,}", gain) for k, gain in curve.gains.items()]
    whose = (
        f"Tried on {curve.queries:,} validation queries."
        if curve.validation
        else f"Tried on {curve.queries:,} of the test queries, to show what k does; choosing k by this picture would "
        "make the test worthless."
    )
    note = f"{whose} All {kinship.judged:,} neighbors at once are one model for all queries, which is the line at zero."
    return {"note": note, "table": tables.row_table(rows)}


def _ratios(kinship: Kinship) -> dict[str, Any] | None:
    if kinship.ratios is None:
        return None
    first, second = kinship.ratios.by_mode["offline-1"], kinship.ratios.by_mode["offline-2"]
    rows = [(f"{k:,}", f"{first[k]:.3f}" if k in first else "not tried", f"{ratio:.3f}") for k, ratio in second.items()]
    return {"queries": f"{kinship.ratios.queries:,}", "table": rows}


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


def _figures(findings: Findings) -> dict[str, str]:
    measure, kinship = str(findings.measure), findings.kinship
    gains = findings.gains
    rows = [
        charts.Row(each.name, findings.comparison.difference(each.name, findings.measure).paired)
        for each in findings.comparison.entrants[1:]
    ]
    figures = {
        "entrants": charts.intervals(rows, _told(f"Change in {measure} by ranker", rows)),
        "gains": charts.gain_bars(gains[~np.isnan(gains)], measure),
        "levels": _levels(findings, measure),
    }
    if findings.timings:
        figures["latency"] = charts.latencies(findings.timings)
    if kinship is None:
        return figures
    figures["map"] = draw_map(kinship, np.nan_to_num(gains), _map_alt(findings, kinship))
    if kinship.weights is not None:
        kinds = tables.kind_rows(findings, kinship, kinship.weights)
        alt = f"The map of queries, coloured by kind: {', '.join(kind.letter for kind in kinship.weights.kinds)}."
        figures["kind_map"] = draw_kinds(kinship, kinship.weights, alt)
        figures["kinds"] = charts.intervals(kinds, _told(f"Change in {measure} by kind of query", kinds))
    if kinship.curve is not None and kinship.n_neighbors is not None:
        by_k = [charts.Row(f"k {k:,}", gain) for k, gain in kinship.curve.gains.items()]
        alt = _told(f"Change in {measure} by number of neighbors", by_k)
        figures["curve"] = charts.gain_curve(kinship.curve.gains, kinship.n_neighbors, alt)
    if kinship.ratios is not None:
        said = "; ".join(
            f"{mode} falls from {next(iter(values.values())):.2f} at k = {next(iter(values)):,} to "
            f"{list(values.values())[-1]:.2f} at k = {list(values)[-1]:,}"
            for mode, values in kinship.ratios.by_mode.items()
            if values
        )
        figures["ratios"] = charts.ratio_curves(kinship.ratios.by_mode, f"Change ratio over k: {said}.")
    return figures


def _levels(findings: Findings, measure: str) -> str:
    rows = tables.level_rows(findings)
    return charts.intervals(rows, _told(f"Change in {measure} by difficulty", rows))


def _told(what: str, rows: list[charts.Row]) -> str:
    """A chart of intervals for those who cannot see it."""
    said = "; ".join(f"{row.label} {spoken(row.gain.mean_difference, '+.4f')}" for row in rows)
    return f"{what}: {said}."


def _map_alt(findings: Findings, kinship: Kinship) -> str:
    return (
        f"Map of {len(kinship.shown):,} queries, coloured by change in {findings.measure}. "
        "The queries that changed most are in the tables above."
    )
