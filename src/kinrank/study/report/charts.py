"""Charts of a report: pure functions from numbers to SVG markup, with text alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kinrank.arrays import Float64
from kinrank.measure import PairedComparison
from kinrank.study.report.contents import ChangeRatios, NeighborAnalysis, Report, Timing
from kinrank.study.report.groups import GroupGain, kind_gains, level_gains
from kinrank.study.report.querymap import draw_kinds, draw_map
from kinrank.study.report.svg import NARROW, Frame, Scale, element, escaped, format_number, padded, picture, polyline

_ROW = 34.0
_MAX_BARS = 400  # on each side; a screen shows no more
_GAP = 0.2  # width for unchanged queries, relative to those that change
_MAX_LABEL_WIDTH = {True: 118.0, False: 260.0}  # on a phone, and elsewhere


def gain_bars(gains: Float64, measure: str) -> str:
    """Draw the gain of each query as sorted bars; adjacent queries share a bar if there are many.

    Unchanged queries, often most of all, are drawn as a gap of limited width.

    Parameters
    ----------
    gains
        Gain of each query.
    measure
        Name of the measure.
    """
    ordered = np.sort(gains)[::-1]
    won, lost = ordered[ordered > 0], ordered[ordered < 0]
    tied = len(gains) - len(won) - len(lost)
    gap = min(tied, max(1.0, _GAP * (len(won) + len(lost))))
    reach = float(np.abs(gains).max()) or 1.0

    def draw(width: float) -> tuple[str, float]:
        frame = Frame(width, 260 if width > NARROW else 220, bottom=30, top=10, left=48)
        across, up = frame.x(0, len(won) + gap + len(lost)), frame.y(-reach * 1.05, reach * 1.05)
        zero = up(0)
        parts = [
            frame.y_axis(up, "+.2f"),
            element("path", class_="area gain", d=_bars(won, 0, across, up)),
            element("path", class_="area loss", d=_bars(lost, len(won) + gap, across, up)),
            element("line", class_="zero", x1=frame.left, x2=width - frame.right, y1=zero, y2=zero),
        ]
        for count, middle, what, at in (
            (len(won), len(won) / 2, "win", up(-reach * 0.15)),
            # On the side with more room.
            (tied, len(won) + gap / 2, "tie", up(reach * (-0.15 if len(won) >= len(lost) else 0.1))),
            (len(lost), len(won) + gap + len(lost) / 2, "lose", up(reach * 0.1)),
        ):
            if count:
                parts.append(
                    element("text", escaped(f"{count:,} {what}"), class_="count middle", x=across(middle), y=at)
                )
        title = escaped("queries, from the largest gain to the largest loss")
        parts.append(element("text", title, class_="axis middle", x=(frame.left + width) / 2, y=frame.height - 8))
        return "".join(parts), frame.height

    best, worst = (format_number(float(end), "+.2f") for end in (gains.max(), gains.min()))
    alt = (
        f"Sorted bars of the change in {measure} of each query: {len(won):,} queries win, {tied:,} tie, {len(lost):,} "
        f"lose; the best change is {best}, the worst {worst}."
    )
    return picture(draw, alt)


def _bars(values: Float64, start: float, across: Scale, up: Scale) -> str:
    """Return path data of adjacent bars; values share a bar if there are more than `_MAX_BARS`."""
    if not len(values):
        return ""
    edges = np.unique(np.linspace(0, len(values), min(len(values), _MAX_BARS) + 1).astype(int))
    heights = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    at = [across(start + edge) for edge in edges.tolist()]
    zero = up(0)
    bars = zip(at[:-1], at[1:], heights.tolist(), strict=True)
    return "".join(f"M{left:.1f} {zero:.1f}V{up(height):.1f}H{right:.1f}V{zero:.1f}" for left, right, height in bars)


def intervals(rows: Sequence[GroupGain], alt: str) -> str:
    """Draw mean gains with confidence intervals, one per row, around a line at zero."""
    ends = [0.0, *(end for row in rows for end in row.gain.interval)]

    def draw(width: float) -> tuple[str, float]:
        left = _label_width([row.label for row in rows], width)
        frame = Frame(width, 46 + _ROW * len(rows), left=left, right=64 if width > NARROW else 14, top=6, bottom=40)
        across = frame.x(*padded(ends))
        zero = across(0)
        parts = [
            frame.x_axis(across, "+.3g", "mean change per query", 5 if width > NARROW else 3),
            element("line", class_="zero", x1=zero, x2=zero, y1=frame.top, y2=frame.height - frame.bottom),
        ]
        for position, row in enumerate(rows):
            y = frame.top + _ROW * (position + 0.5)
            low, high = row.gain.interval
            kind = "gain" if low > 0 else "loss" if high < 0 else "unsure"
            parts += [
                element("text", escaped(_shorten(row.label, left)), class_="row end", x=left - 10, y=y + 4),
                element("line", class_=f"whisker {kind}", x1=across(low), x2=across(high), y1=y, y2=y),
                element("circle", class_=f"dot {kind}", cx=across(row.gain.mean_difference), cy=y, r=5),
            ]
            if width > NARROW:
                value = escaped(format_number(row.gain.mean_difference, "+.4f"))
                parts.append(element("text", value, class_="tick end", x=width - 4, y=y + 4))
        return "".join(parts), frame.height

    return picture(draw, alt)


def latencies(timings: Sequence[Timing]) -> str:
    """Draw the median and 95th percentile of each entrant on a logarithmic scale."""
    ends = [value for timing in timings for value in (timing.median, timing.p95)]

    def draw(width: float) -> tuple[str, float]:
        left = _label_width([timing.name for timing in timings], width)
        frame = Frame(width, 46 + _ROW * len(timings), left=left, right=20, top=6, bottom=40)
        across = frame.x(min(ends) / 1.3, max(ends) * 1.3, log=True)
        parts = [frame.x_axis(across, "g", "milliseconds per query")]
        for position, timing in enumerate(timings):
            y = frame.top + _ROW * (position + 0.5)
            start, end = across(timing.median), across(timing.p95)
            parts += [
                element("text", escaped(_shorten(timing.name, left)), class_="row end", x=left - 10, y=y + 4),
                element("line", class_="whisker plain", x1=start, x2=end, y1=y, y2=y),
                element("circle", class_="dot plain", cx=start, cy=y, r=5),
                element("line", class_="whisker plain", x1=end, x2=end, y1=y - 5, y2=y + 5),
            ]
        return "".join(parts), frame.height

    times = "; ".join(f"{each.name} {each.median:.2f} ms, 95th percentile {each.p95:.2f} ms" for each in timings)
    return picture(draw, f"Time to rank one query, median to 95th percentile: {times}.")


def gain_curve(gains: Mapping[int, PairedComparison], own: int, alt: str) -> str:
    """Draw the gain of each k over one linear model with its interval, and mark the ranker's own k."""
    ks = sorted(gains)
    low = [gains[k].interval[0] for k in ks]
    high = [gains[k].interval[1] for k in ks]

    def draw(width: float) -> tuple[str, float]:
        frame = Frame(width, 260, left=60)
        across, up = _log_k(frame, ks), frame.y(*padded([*low, *high, 0.0]))
        xs = [across(k) for k in ks]
        band = polyline([*xs, *xs[::-1]], [up(v) for v in [*high, *low[::-1]]]) + "Z"
        at = across(own)
        parts = [
            frame.y_axis(up, "+.3f"),
            frame.x_axis(across, ",.0f", "k, neighbors that a model is learned from"),
            element("path", class_="band", d=band),
            element("line", class_="zero", x1=frame.left, x2=width - frame.right, y1=up(0), y2=up(0)),
            element("path", class_="line one", d=polyline(xs, [up(gains[k].mean_difference) for k in ks])),
            *(element("circle", class_="dot gain", cx=across(k), cy=up(gains[k].mean_difference), r=3.5) for k in ks),
            element("line", class_="own", x1=at, x2=at, y1=frame.top, y2=frame.height - frame.bottom),
            element("text", escaped(f"k = {own:,}"), class_=f"tick {_side(at, width)}", x=at + _nudge(at, width), y=22),
        ]
        return "".join(parts), frame.height

    return picture(draw, alt)


def ratio_curves(by_mode: Mapping[str, Mapping[int, float]], alt: str) -> str:
    """Draw the change ratio of both offline modes over k."""
    ks = sorted({k for values in by_mode.values() for k in values})
    top = max(value for values in by_mode.values() for value in values.values())

    def draw(width: float) -> tuple[str, float]:
        frame = Frame(width, 240, left=48)
        across, up = _log_k(frame, ks), frame.y(0, top * 1.08 or 1.0)
        parts = [frame.y_axis(up, ".2g"), frame.x_axis(across, ",.0f", "k, neighbors that a model is learned from")]
        for position, (mode, values) in enumerate(by_mode.items()):
            if not values:
                continue
            style = ("one", "two")[position]
            xs, ys = [across(k) for k in values], [up(v) for v in values.values()]
            parts.append(element("path", class_=f"line {style}", d=polyline(xs, ys)))
            marks = zip(xs, ys, strict=True)
            parts += [_mark(style, x, y) for x, y in marks]
            key = width - 130, 24 + 20 * position
            parts += [
                _mark(style, key[0], key[1] - 4),
                element("text", escaped(mode.capitalize()), class_="tick", x=key[0] + 12, y=key[1]),
            ]
        return "".join(parts), frame.height

    return picture(draw, alt)


def _mark(style: str, x: float, y: float) -> str:
    """Return a circle for the first line and a square for the second, so that they differ without color."""
    if style == "one":
        return element("circle", class_="dot one", cx=x, cy=y, r=4)
    return element("rect", class_="dot two", x=x - 3.5, y=y - 3.5, width=7, height=7)


def _log_k(frame: Frame, ks: Sequence[int]) -> Scale:
    return frame.x(ks[0] / 1.1, max(ks[-1], ks[0] + 1) * 1.1, log=True)


def _side(at: float, width: float) -> str:
    return "end" if at > width * 0.7 else "start"


def _nudge(at: float, width: float) -> float:
    return -6 if at > width * 0.7 else 6


def _label_width(labels: Sequence[str], width: float) -> float:
    """Return the width of the longest label, up to a maximum."""
    return min(_MAX_LABEL_WIDTH[width <= NARROW], 28 + 7.0 * max(map(len, labels)))


def _shorten(label: str, width: float) -> str:
    """Shorten a label to a width, at about seven pixels per letter."""
    most = int((width - 14) / 7)
    return label if len(label) <= most else label[: most - 1] + "…"


def figures_of(report: Report) -> dict[str, str]:
    """Return SVG markup by template name; charts without data are left out."""
    measure, gains = str(report.measure), report.gains
    rankers = [
        GroupGain(each.name, report.comparison.difference(each.name, report.measure).paired)
        for each in report.comparison.entrants[1:]
    ]
    figures = {
        "entrants": _intervals(f"Change in {measure} by ranker", rankers),
        "gains": gain_bars(gains[~np.isnan(gains)], measure),
    }
    levels = level_gains(report)
    if levels:
        figures["levels"] = _intervals(f"Change in {measure} by difficulty", levels)
    kinds = kind_gains(report)
    if kinds:
        figures["kinds"] = _intervals(f"Change in {measure} by kind of query", kinds)
    if report.timings:
        figures["latency"] = latencies(report.timings)
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
        figures["curve"] = gain_curve(analysis.curve.gains, analysis.n_neighbors, alt)
    if analysis.ratios is not None:
        figures["ratios"] = ratio_curves(analysis.ratios.by_mode, _ratio_alt(analysis.ratios))
    return figures


def _intervals(what: str, rows: list[GroupGain]) -> str:
    return intervals(rows, _intervals_alt(what, rows))


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
