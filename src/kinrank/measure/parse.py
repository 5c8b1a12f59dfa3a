"""Measures from text, as written on a command line."""

from __future__ import annotations

import re
from typing import Any

from kinrank.errors import ParameterError
from kinrank.measure.base import Measure
from kinrank.measure.binary import AP, RR, P
from kinrank.measure.cascade import ERR
from kinrank.measure.discounted import DCG, NDCG, MeanNDCG
from kinrank.measure.letor import LETOR_MAP, LETOR_NDCG, MEAN_NDCG_GENG, MEAN_NDCG_LETOR

MEASURES: dict[str, Measure] = {
    "NDCG": NDCG,
    "DCG": DCG,
    "MeanNDCG": MeanNDCG,
    "AP": AP,
    "MAP": AP,
    "P": P,
    "RR": RR,
    "MRR": RR,
    "ERR": ERR,
    "LETOR_NDCG": LETOR_NDCG,
    "LETOR_MAP": LETOR_MAP,
    "MEAN_NDCG_LETOR": MEAN_NDCG_LETOR,
    "MEAN_NDCG_GENG": MEAN_NDCG_GENG,
}
"""Every measure that has a name."""

_SHAPE = re.compile(r"\s*(?P<name>\w+)\s*(?:\((?P<conventions>[^()]*)\))?\s*(?:@\s*(?P<k>\d+))?\s*")


def parse_measure(text: str) -> Measure:
    """Read a measure: a name, conventions in brackets, a cutoff after @.

    Names are found whatever their case; what `repr` shows can be read back.

    Examples
    --------
    >>> parse_measure("ndcg@10")
    NDCG @ 10
    >>> parse_measure("NDCG(discount=letor, no_relevant=skip)@5")
    NDCG(no_relevant='skip', discount='letor') @ 5
    >>> parse_measure("NDCG@ten")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: cannot read the measure 'NDCG@ten': write it like NDCG@10 or NDCG(gain=linear)@10
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ParameterError(f"cannot read the measure {text!r}: write it like NDCG@10 or NDCG(gain=linear)@10")
    named = {name.lower(): measure for name, measure in MEASURES.items()}
    measure = named.get(match["name"].lower())
    if measure is None:
        raise ParameterError(f"unknown measure {match['name']!r}: choose one of {', '.join(MEASURES)}")
    conventions = dict(_convention(part, text) for part in (match["conventions"] or "").split(",") if part.strip())
    if match["k"] is not None:
        conventions["k"] = int(match["k"])
    return measure(**conventions)


def _convention(part: str, text: str) -> tuple[str, Any]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not (name and equals and value):
        raise ParameterError(f"cannot read {part.strip()!r} in the measure {text!r}: write conventions as name=value")
    value = value.strip("'\"")
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    return name, value
