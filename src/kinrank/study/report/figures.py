"""Every picture of the page, drawn from the findings, with words for those who cannot see it."""

from __future__ import annotations

import numpy as np

from kinrank.study.report import charts
from kinrank.study.report.findings import ChangeRatios, Findings, Kinship
from kinrank.study.report.groups import GroupGain, kind_gains, level_gains
from kinrank.study.report.querymap import draw_kinds, draw_map
from kinrank.study.report.svg import spoken


def figures_of(findings: Findings) -> dict[str, str]:
    """SVG by the name that the page's template has for it; those of parts that cannot be told are left out."""
    measure, gains = str(findings.measure), findings.gains
    rankers = [
        GroupGain(each.name, findings.comparison.difference(each.name, findings.measure).paired)
        for each in findings.comparison.entrants[1:]
    ]
    figures = {
        "entrants": _intervals(f"Change in {measure} by ranker", rankers),
        "gains": charts.gain_bars(gains[~np.isnan(gains)], measure),
    }
    levels = level_gains(findings)
    if levels:
        figures["levels"] = _intervals(f"Change in {measure} by difficulty", levels)
    if findings.timings:
        figures["latency"] = charts.latencies(findings.timings)
    return figures if findings.kinship is None else figures | _of_kin(findings, findings.kinship)


def _of_kin(findings: Findings, kinship: Kinship) -> dict[str, str]:
    measure = str(findings.measure)
    figures = {"map": draw_map(kinship, findings.gains, _map_alt(findings, kinship))}
    if kinship.weights is not None:
        letters = ", ".join(kind.letter for kind in kinship.weights.kinds)
        figures["kind_map"] = draw_kinds(kinship, kinship.weights, f"The map of queries, colored by kind: {letters}.")
        kinds = kind_gains(findings, kinship, kinship.weights)
        figures["kinds"] = _intervals(f"Change in {measure} by kind of query", kinds)
    if kinship.curve is not None and kinship.n_neighbors is not None:
        by_k = [GroupGain(f"k {k:,}", gain) for k, gain in kinship.curve.gains.items()]
        alt = _told(f"Change in {measure} by number of neighbors", by_k)
        figures["curve"] = charts.gain_curve(kinship.curve.gains, kinship.n_neighbors, alt)
    if kinship.ratios is not None:
        figures["ratios"] = charts.ratio_curves(kinship.ratios.by_mode, _ratio_alt(kinship.ratios))
    return figures


def _intervals(what: str, rows: list[GroupGain]) -> str:
    return charts.intervals(rows, _told(what, rows))


def _told(what: str, rows: list[GroupGain]) -> str:
    """A chart of intervals for those who cannot see it."""
    said = "; ".join(f"{row.label} {spoken(row.gain.mean_difference, '+.4f')}" for row in rows)
    return f"{what}: {said}."


def _map_alt(findings: Findings, kinship: Kinship) -> str:
    return (
        f"Map of {len(kinship.shown):,} queries, colored by change in {findings.measure}. "
        "The queries that changed most are in the tables above."
    )


def _ratio_alt(ratios: ChangeRatios) -> str:
    said = [
        f"{mode} goes from {values[min(values)]:.2f} at k = {min(values):,} to {values[max(values)]:.2f} at k = "
        f"{max(values):,}"
        for mode, values in ratios.by_mode.items()
        if values
    ]
    return f"Change ratio over k: {'; '.join(said)}."
