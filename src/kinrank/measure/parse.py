"""Read measures from text, such as command-line options."""

from __future__ import annotations

import re

from kinrank.errors import ParameterError
from kinrank.measure.base import Measure
from kinrank.registry import Registry
from kinrank.registry.notation import parse_settings, split_call

MEASURES = Registry(
    "measure",
    {
        "NDCG": "kinrank.measure.discounted:NDCG",
        "DCG": "kinrank.measure.discounted:DCG",
        "MeanNDCG": "kinrank.measure.discounted:MeanNDCG",
        "AP": "kinrank.measure.binary:AP",
        "MAP": "kinrank.measure.binary:AP",
        "P": "kinrank.measure.binary:P",
        "RR": "kinrank.measure.binary:RR",
        "MRR": "kinrank.measure.binary:RR",
        "ERR": "kinrank.measure.cascade:ERR",
        "LETOR_NDCG": "kinrank.measure.letor:LETOR_NDCG",
        "LETOR_MAP": "kinrank.measure.letor:LETOR_MAP",
        "MEAN_NDCG_LETOR": "kinrank.measure.letor:MEAN_NDCG_LETOR",
        "MEAN_NDCG_GENG": "kinrank.measure.letor:MEAN_NDCG_GENG",
    },
)
"""All measures by name."""

_CUTOFF = re.compile(r"(?P<call>.+?)\s*(?:@\s*(?P<k>\d+))?\s*")


def parse_measure(text: str) -> Measure:
    """Read a measure: its name, conventions in parentheses, a cutoff after ``@``.

    Names are case-insensitive. The `repr` of a measure can be read back.

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
    names = {known.lower(): known for known in MEASURES}
    measure: Measure = MEASURES[names.get(name.lower(), name)]
    conventions = parse_settings(None, settings)
    if match["k"] is not None:
        conventions["k"] = int(match["k"])
    return measure(**conventions)
