from __future__ import annotations

import pytest

from kinrank.errors import ParameterError
from kinrank.kin.blocks import parse_blocks


def test_equivalent_specs_give_the_same_blocks() -> None:
    expected = parse_blocks("mean+text", scored=True)
    assert parse_blocks(["mean", "text"], scored=True) == expected
    assert parse_blocks(("mean", "text"), scored=True) == expected
    assert parse_blocks({"text": 2.0, "mean": 1.0}, scored=True) == expected
    assert list(parse_blocks("text+mean", scored=True)) == list(expected)


def test_predictors_need_a_reference() -> None:
    scored = parse_blocks("summaries", scored=True)
    assert list(scored) == ["mean", "std", "max", "size", "predictors"]
    unscored = parse_blocks("summaries", scored=False)
    assert list(unscored) == ["mean", "std", "max", "size"]
    with pytest.raises(ParameterError, match="set reference= to a feature"):
        parse_blocks("predictors", scored=False)


def test_weight_of_summaries_applies_to_blocks_not_named() -> None:
    weights = parse_blocks({"summaries": 2.0, "std": 0.1}, scored=True)
    assert weights == {"mean": 2.0, "max": 2.0, "size": 1.0, "predictors": 1.0, "std": 0.1}


@pytest.mark.parametrize("spec", ["median", "q", "q100", "column:", "", "mean+"])
def test_unknown_block_raises(spec: str) -> None:
    with pytest.raises(ParameterError, match=r"unknown block .* choose from 'summaries'"):
        parse_blocks(spec, scored=True)


def test_bad_specs_raise() -> None:
    with pytest.raises(ParameterError, match="twice"):
        parse_blocks("mean+mean", scored=True)
    with pytest.raises(ParameterError, match="no block"):
        parse_blocks([], scored=True)
    for weight in (0, -1, float("nan")):
        with pytest.raises(ParameterError, match="weight of block 'mean' must be above 0"):
            parse_blocks({"mean": weight}, scored=True)
