"""Draw all charts of a report, with text alternatives."""

from __future__ import annotations

import numpy as np

from kinrank.study.report import charts
from kinrank.study.report.contents import ChangeRatios, NeighborAnalysis, Report
from kinrank.study.report.groups import GroupGain, kind_gains, level_gains
from kinrank.study.report.querymap import draw_kinds, draw_map
from kinrank.study.report.svg import format_number


def figures_of(report: Report) -> dict[str, str]:
    """Return SVG markup by template name; charts without data are left out."""
    measure, gains = str(report.measure), report.gains
    rankers = [
        GroupGain(each.name, report.comparison.difference(each.name, report.measure).paired)
        for each in report.comparison.entrants[1:]
    ]
    figures = {
        "entrants": _intervals(f"Change in {measure} by ranker", rankers),
        "gains": charts.gain_bars(gains[~np.isnan(gains)], measure),
    }
    levels = level_gains(report)
    if levels:
        figures["levels"] = _intervals(f"Change in {measure} by difficulty", levels)
    kinds = kind_gains(report)
    if kinds:
        figures["kinds"] = _intervals(f"Change in {measure} by kind of query", kinds)
    if report.timings:
        figures["latency"] = charts.latencies(report.timings)
    return figures if report.neighbors is None else figures | _neighbor_figures(report, report.neighbors)


def _neighbor_figures(report: Report, analysis: NeighborAnalysis) -> dict[str, str]:
    measure = str(report.measure)
    figures = {"map": draw_map(analysis, report.gains, _map_alt(report, analysis))}
    if analysis.shares is not None:
        letters = ", ".join(kind.letter for kind in analysis.shares.kinds)
        figures["kind_map"] = draw_kinds(analysis, analysis.shares, f"The map of queries, colored by kind: {letters}.")
    if analysis.curve is not None and analysis.n_neighbors is not None:
        by_k = [GroupGain(f"k {k:,}", gain) for k, gain in analysis.curve.gains.items()]
        alt = _intervals_alt(f"Change in {measure} by number of neighbors", by_k)
        figures["curve"] = charts.gain_curve(analysis.curve.gains, analysis.n_neighbors, alt)
    if analysis.ratios is not None:
        figures["ratios"] = charts.ratio_curves(analysis.ratios.by_mode, _ratio_alt(analysis.ratios))
    return figures


def _intervals(what: str, rows: list[GroupGain]) -> str:
    return charts.intervals(rows, _intervals_alt(what, rows))


def _intervals_alt(what: str, rows: list[GroupGain]) -> str:
    """Return the text alternative of a chart of intervals."""
    values = "; ".join(f"{row.label} {format_number(row.gain.mean_difference, '+.4f')}" for row in rows)
    return f"{what}: {values}."


def _map_alt(report: Report, analysis: NeighborAnalysis) -> str:
    return (
        f"Map of {len(analysis.shown):,} queries, colored by change in {report.measure}. "
        "The queries that changed most are in the tables above."
    )


def _ratio_alt(ratios: ChangeRatios) -> str:
    changes = [
        f"{mode} goes from {values[min(values)]:.2f} at k = {min(values):,} to {values[max(values)]:.2f} at k = "
        f"{max(values):,}"
        for mode, values in ratios.by_mode.items()
        if values
    ]
    return f"Change ratio over k: {'; '.join(changes)}."
