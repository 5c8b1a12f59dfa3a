"""Every registered ranker keeps the contract, with its default settings and with those listed here."""

from __future__ import annotations

from functools import partial

import pytest

from kinrank import SingleRanker
from kinrank.checks import ranker_checks
from kinrank.checks.rankers import RankerCheck
from kinrank.rankers import RANKERS, Ranker

MAKERS: dict[str, partial[Ranker]] = {name: partial(RANKERS[name]) for name in RANKERS} | {
    "single rankrls": partial(SingleRanker, "rankrls"),
    "single unscaled": partial(SingleRanker, "ranksvm", scale="none", missing="zero"),
    "single lambdamart": partial(SingleRanker, "lambdamart"),
}


@pytest.mark.parametrize("check", ranker_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_contract(make: partial[Ranker], check: RankerCheck) -> None:
    check(make)
