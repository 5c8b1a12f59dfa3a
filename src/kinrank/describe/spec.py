"""Parse the ``describe=`` argument."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from kinrank.errors import ParameterError

Spec = str | Sequence[str] | Mapping[str, float]

BLOCKS = ("mean", "std", "max", "min", "size", "predictors", "text")
SUMMARIES = ("mean", "std", "max", "size", "predictors")
COLUMN = "column:"
_QUANTILE = re.compile(r"q(\d{1,2})\Z")

# Blocks of a few values count half as much as a block of features; the text, which adds information that the
# candidates do not have, counts double. Chosen on the validation queries of MSRD.
_WEIGHTS = {"size": 0.5, "predictors": 0.5, "text": 2.0}


def parse_blocks(spec: Spec, *, scored: bool) -> dict[str, float]:
    """Return block names and weights, in an order that does not depend on the input.

    Parameters
    ----------
    spec
        ``"mean"``, ``"summaries+text"``, a list of block names, or a mapping from block name to weight.
        ``"summaries"`` stands for mean, std, max, size and predictors.
    scored
        Whether there is a reference feature. Without one, ``"summaries"`` omits the predictors, and naming them
        is an error.

    Examples
    --------
    >>> parse_blocks("mean+text", scored=False)
    {'mean': 1.0, 'text': 2.0}
    >>> parse_blocks({"mean": 1, "column:words": 0.3}, scored=False)
    {'mean': 1.0, 'column:words': 0.3}
    """
    if isinstance(spec, str):
        spec = spec.split("+")
    given = spec if isinstance(spec, Mapping) else dict.fromkeys(spec)
    if not isinstance(spec, Mapping) and len(given) < len(spec):
        raise ParameterError(f"describe names a block twice, got {list(spec)!r}: name each block once")
    weights: dict[str, float] = {}
    for name, weight in given.items():
        if name == "summaries":
            members = SUMMARIES if scored else tuple(block for block in SUMMARIES if block != "predictors")
            members = tuple(member for member in members if member not in given)
            weights |= {member: default_weight(member) * (1.0 if weight is None else weight) for member in members}
        else:
            _check_name(name, scored)
            weights[name] = default_weight(name) if weight is None else float(weight)
    for name, value in weights.items():
        if not (np.isfinite(value) and value > 0):
            raise ParameterError(
                f"the weight of block {name!r} must be above 0, got {value}: use a positive weight or omit the block"
            )
    if not weights:
        raise ParameterError("describe names no block: give at least one, such as 'mean'")
    return {name: weights[name] for name in sorted(weights, key=_sort_key)}


def _sort_key(block: str) -> tuple[int, str]:
    """Return the sort key of a block, so that saved settings and arrays match."""
    return (BLOCKS.index(block) if block in BLOCKS else len(BLOCKS), block)


def default_weight(block: str) -> float:
    """Return the weight of a block if none is given."""
    return 0.5 if block.startswith(COLUMN) else _WEIGHTS.get(block, 1.0)


def parse_quantile(block: str) -> float | None:
    """Return the quantile of a block such as ``q25``, or None for other blocks.

    Examples
    --------
    >>> parse_quantile("q25")
    0.25
    """
    match = _QUANTILE.match(block)
    return int(match[1]) / 100 if match else None


def _check_name(name: str, scored: bool) -> None:
    if name == "predictors" and not scored:
        raise ParameterError("the block 'predictors' needs reference scores: set reference= to a feature")
    if (
        name not in BLOCKS
        and parse_quantile(name) is None
        and not (name.startswith(COLUMN) and len(name) > len(COLUMN))
    ):
        choices = ", ".join(repr(block) for block in ("summaries", *BLOCKS, "q25", "column:NAME"))
        raise ParameterError(f"unknown block {name!r} in describe: choose from {choices}")
