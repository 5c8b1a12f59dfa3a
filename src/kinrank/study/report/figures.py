"""Every picture of the page, drawn from the report, with words for those who cannot see it."""

from __future__ import annotations

import numpy as np

from kinrank.study.report import charts
from kinrank.study.report.contents import ChangeRatios, NeighborAnalysis, Report
from kinrank.study.report.groups import GroupGain, kind_gains, level_gains
from kinrank.study.report.querymap import draw_kinds, draw_map
from kinrank.study.report.svg import format_number


def figures_of(report: Report) -> dict[str, str]:
    """SVG by the name that the page's template has for it; those of parts that cannot be told are left out."""
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
    if report.timings:
        figures["latency"] = charts.latencies(report.timings)
    return figures if report.kinship is None else figures | _of_kin(report, report.kinship)


def _of_kin(report: Report, kinship: NeighborAnalysis) -> dict[str, str]:
    measure = str(report.measure)
    figures = {"map": draw_map(kinship, report.gains, _map_alt(report, kinship))}
    if kinship.weights is not None:
        letters = ", ".join(kind.letter for kind in kinship.weights.kinds)
        figures["kind_map"] = draw_kinds(kinship, kinship.weights, f"The map of queries, colored by kind: {letters}.")
        kinds = kind_gains(report, kinship, kinship.weights)
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
    said = "; ".join(f"{row.label} {format_number(row.gain.mean_difference, '+.4f')}" for row in rows)
    return f"{what}: {said}."


def _map_alt(report: Report, kinship: NeighborAnalysis) -> str:
    return (
        f"Map of {len(kinship.shown):,} queries, colored by change in {report.measure}. "
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
