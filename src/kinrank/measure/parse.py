"""Measures from text, as written on a command line."""

from __future__ import annotations

import re

from kinrank.errors import ParameterError
from kinrank.measure.base import Measure
from kinrank.measure.binary import AP, RR, P
from kinrank.measure.cascade import ERR
from kinrank.measure.discounted import DCG, NDCG, MeanNDCG
from kinrank.measure.letor import LETOR_MAP, LETOR_NDCG, MEAN_NDCG_GENG, MEAN_NDCG_LETOR
from kinrank.registry.notation import parse_settings, split_call

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

_CUTOFF = re.compile(r"(?P<call>.+?)\s*(?:@\s*(?P<k>\d+))?\s*")


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
    kinrank.errors.ParameterError: cannot read measure 'NDCG@ten': write it like NDCG@10 or NDCG(gain=linear)@10
    """
    match = _CUTOFF.fullmatch(text)
    if match is None or "@" in match["call"]:
        raise ParameterError(f"cannot read measure {text!r}: write it like NDCG@10 or NDCG(gain=linear)@10")
    name, settings = split_call(match["call"], "measure")
    measure = {known.lower(): measure for known, measure in MEASURES.items()}.get(name.lower())
    if measure is None:
        raise ParameterError(f"unknown measure {name!r}: choose one of {', '.join(MEASURES)}")
    conventions = parse_settings(None, settings)
    if match["k"] is not None:
        conventions["k"] = int(match["k"])
    return measure(**conventions)
