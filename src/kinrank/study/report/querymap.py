"""The map of queries: the drawing, and the data that makes it interactive."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.study.report.contents import FeatureShares, NeighborAnalysis, Report
from kinrank.study.report.svg import element, escaped

SIDE = 680
"""Width and height of the map in SVG units."""

_EDGE = 20
_LEVELS = 3  # shades on each side of zero
_COLOR_FEATURES = 24  # the map can be colored by the features that vary most


def shade_levels(gains: Float64) -> NDArray[np.int64]:
    """Return shades from -3 to 3, in equal steps up to the 95th percentile of nonzero sizes; 0 and NaN give 0.

    Examples
    --------
    >>> shade_levels(np.array([-0.9, -0.1, 0.0, 0.4, 0.9, np.nan])).tolist()
    [-3, -1, 0, 2, 3, 0]
    """
    known = np.nan_to_num(gains)
    size = np.abs(known)
    reach = float(np.quantile(size[size > 0], 0.95)) if size.any() else 1.0
    # Round up, so that only unchanged queries have no shade.
    shades = np.sign(known) * np.minimum(np.ceil(size / reach * _LEVELS - 1e-9), _LEVELS)
    return shades.astype(np.int64)


def map_positions(positions: Float64) -> NDArray[np.int64]:
    """Convert positions in the unit square to whole SVG units, with y pointing down."""
    flipped = np.column_stack([positions[:, 0], 1 - positions[:, 1]])
    return np.rint(_EDGE + flipped * (SIDE - 2 * _EDGE)).astype(np.int64)


def draw_map(analysis: NeighborAnalysis, gains: Float64, alt: str) -> str:
    """Draw the map colored by gain, with a ring for the selected query."""
    shades = shade_levels(gains[analysis.shown])
    # Draw unchanged queries first, below the others.
    parts = [
        _dots(analysis, np.flatnonzero(shades == shade), shade_class(shade))
        for shade in sorted(range(-_LEVELS, _LEVELS + 1), key=abs)
    ]
    ring = element("circle", class_="here", r=9, cx=-20, cy=-20)
    return _map([*parts, ring], alt, id="query-map", tabindex=0, aria_describedby="map-help")


def draw_kinds(analysis: NeighborAnalysis, shares: FeatureShares, alt: str) -> str:
    """Draw the map colored by kind, with the letter of each kind at its median."""
    at = map_positions(analysis.positions)
    parts = [_dots(analysis, kind.members, f"k{position}") for position, kind in enumerate(shares.kinds)]
    for kind in shares.kinds:
        if not len(kind.members):
            continue
        x, y = np.median(at[kind.members], axis=0).tolist()
        parts.append(element("text", escaped(kind.letter), class_="kind middle", x=x, y=y + 8))
    return _map(parts, alt)


def _dots(analysis: NeighborAnalysis, members: NDArray[np.int64], kind: str) -> str:
    """Draw queries as zero-length strokes of one path, which takes a few bytes per query.

    The style sheet makes the strokes round or square, so that gains and losses also differ in shape.
    """
    at = map_positions(analysis.positions)[members].tolist()
    return element("path", class_=f"dots {kind}", d="".join(f"M{x} {y}h0" for x, y in at))


def _map(parts: list[str], alt: str, **attributes: object) -> str:
    return element("svg", *parts, class_="map", role="img", aria_label=alt, viewBox=f"0 0 {SIDE} {SIDE}", **attributes)


def shade_class(shade: int) -> str:
    """Return the class name of a shade: gain1 to gain3, loss1 to loss3, or none.

    Examples
    --------
    >>> shade_class(-2), shade_class(0)
    ('loss2', 'none')
    """
    return "none" if not shade else f"{'gain' if shade > 0 else 'loss'}{abs(shade)}"


def map_data(report: Report, analysis: NeighborAnalysis) -> dict[str, Any]:
    """Return the data for the page's script; shares are in tenths of a percent."""
    shown = analysis.shown
    measured = [each.per_query(report.measure)[shown] for each in (report.comparison.baseline, report.subject_entrant)]
    data: dict[str, Any] = {
        "measure": str(report.measure),
        "names": [report.names[query] for query in shown.tolist()],
        "at": map_positions(analysis.positions).tolist(),
        "before": _rounded(measured[0]),
        "after": _rounded(measured[1]),
        "shade": shade_levels(report.gains[shown]).tolist(),
        "nearest": [list(names) for names in analysis.nearest],
        "features": [],
    }
    if analysis.shares is None:
        return data
    change = analysis.shares.by_query - analysis.shares.overall
    varying = np.argsort(-change.std(axis=0), kind="stable")[:_COLOR_FEATURES]
    kind_of = np.zeros(len(shown), dtype=np.int64)
    for position, kind in enumerate(analysis.shares.kinds):
        kind_of[kind.members] = position
    return data | {
        "features": [report.comparison.queries.feature_names[feature] for feature in varying.tolist()],
        "overall": _per_mille(analysis.shares.overall[varying]),
        "change": _per_mille(change[:, varying]),
        "kinds": [kind.label for kind in analysis.shares.kinds],
        "kind": kind_of.tolist(),
    }


def _rounded(values: Float64) -> list[float | None]:
    """Round values, with None for NaN, which JSON does not have."""
    return [None if np.isnan(value) else round(value, 4) for value in values.tolist()]


def _per_mille(shares: Float64) -> Any:
    return np.rint(shares * 1000).astype(int).tolist()
