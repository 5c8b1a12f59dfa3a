"""The map of queries: a drawing that prints, and the data that makes it answer to a pointer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.study.report.contents import NeighborAnalysis, Report, Weights
from kinrank.study.report.svg import element, words

SIDE = 680
"""Width and height of the map in its own units."""

_EDGE = 20
_LEVELS = 3  # shades on each side of zero
_COLOR_FEATURES = 24  # features that the map can be colored by: those that vary most


def levels_of(gains: Float64) -> NDArray[np.int64]:
    """Shades from -3 to 3: equal steps up to the 95th percentile of what is not 0; 0 and NaN are 0.

    Examples
    --------
    >>> levels_of(np.array([-0.9, -0.1, 0.0, 0.4, 0.9, np.nan])).tolist()
    [-3, -1, 0, 2, 3, 0]
    """
    known = np.nan_to_num(gains)
    size = np.abs(known)
    reach = float(np.quantile(size[size > 0], 0.95)) if size.any() else 1.0
    # Rounded up, so that only what did not change has no shade.
    shades = np.sign(known) * np.minimum(np.ceil(size / reach * _LEVELS - 1e-9), _LEVELS)
    return shades.astype(np.int64)


def places_on_paper(places: Float64) -> NDArray[np.int64]:
    """Places in the unit square as whole units of the map, y downwards."""
    flipped = np.column_stack([places[:, 0], 1 - places[:, 1]])
    return np.rint(_EDGE + flipped * (SIDE - 2 * _EDGE)).astype(np.int64)


def draw_map(kinship: NeighborAnalysis, gains: Float64, alt: str) -> str:
    """The map colored by gain, with a ring for the query that is pointed at."""
    shades = levels_of(gains[kinship.shown])
    # Whatever did not change lies under what did.
    parts = [
        _dots(kinship, np.flatnonzero(shades == shade), shade_class(shade))
        for shade in sorted(range(-_LEVELS, _LEVELS + 1), key=abs)
    ]
    ring = element("circle", class_="here", r=9, cx=-20, cy=-20)
    return _map([*parts, ring], alt, id="query-map", tabindex=0, aria_describedby="map-help")


def draw_kinds(kinship: NeighborAnalysis, weights: Weights, alt: str) -> str:
    """The map colored by kind, with a letter in the middle of each."""
    at = places_on_paper(kinship.places)
    parts = [_dots(kinship, kind.members, f"k{place}") for place, kind in enumerate(weights.kinds)]
    for kind in weights.kinds:
        x, y = np.median(at[kind.members], axis=0).tolist()
        parts.append(element("text", words(kind.letter), class_="kind middle", x=x, y=y + 8))
    return _map(parts, alt)


def _dots(kinship: NeighborAnalysis, members: NDArray[np.int64], kind: str) -> str:
    """Queries as one path, in which each is a dot without length.

    Strokes of such dots are round or square by the style sheet, so that thousands of queries cost a few bytes each,
    and gains and losses differ in shape as well.
    """
    at = places_on_paper(kinship.places)[members].tolist()
    return element("path", class_=f"dots {kind}", d="".join(f"M{x} {y}h0" for x, y in at))


def _map(parts: list[str], alt: str, **attributes: object) -> str:
    return element("svg", *parts, class_="map", role="img", aria_label=alt, viewBox=f"0 0 {SIDE} {SIDE}", **attributes)


def shade_class(shade: int) -> str:
    """The class name of a shade: gain1 to gain3, loss1 to loss3, none.

    Examples
    --------
    >>> shade_class(-2), shade_class(0)
    ('loss2', 'none')
    """
    return "none" if not shade else f"{'gain' if shade > 0 else 'loss'}{abs(shade)}"


def map_data(report: Report, kinship: NeighborAnalysis) -> dict[str, Any]:
    """What the page's script needs, as short as it can be told: shares in tenths of a percent."""
    shown = kinship.shown
    measured = [each.per_query(report.measure)[shown] for each in (report.comparison.baseline, report.own)]
    data: dict[str, Any] = {
        "measure": str(report.measure),
        "names": [report.names[query] for query in shown.tolist()],
        "at": places_on_paper(kinship.places).tolist(),
        "before": _rounded(measured[0]),
        "after": _rounded(measured[1]),
        "shade": levels_of(report.gains[shown]).tolist(),
        "kin": [list(names) for names in kinship.kin],
        "features": [],
    }
    if kinship.weights is None:
        return data
    change = kinship.weights.shares - kinship.weights.everywhere
    told = np.argsort(-change.std(axis=0), kind="stable")[:_COLOR_FEATURES]
    kind_of = np.zeros(len(shown), dtype=np.int64)
    for place, kind in enumerate(kinship.weights.kinds):
        kind_of[kind.members] = place
    return data | {
        "features": [report.comparison.queries.feature_names[feature] for feature in told.tolist()],
        "everywhere": _per_mille(kinship.weights.everywhere[told]),
        "change": _per_mille(change[:, told]),
        "kinds": [kind.letter for kind in kinship.weights.kinds],
        "kind": kind_of.tolist(),
    }


def _rounded(values: Float64) -> list[float | None]:
    """JSON has no NaN."""
    return [None if np.isnan(value) else round(value, 4) for value in values.tolist()]


def _per_mille(shares: Float64) -> Any:
    return np.rint(shares * 1000).astype(int).tolist()
