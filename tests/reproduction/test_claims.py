from __future__ import annotations

from dataclasses import replace

import pytest

from kinrank.errors import ParameterError
from reproduction import PAPERS
from reproduction.catalog import EXPERIMENTS
from reproduction.claims import Claim, Verdict, expectations, judge, read_expectations

ENTRY = """
command = "python -m reproduction toy"
thesis = "MAP is high"
why = "It is a toy"
[[claim]]
source = "Table 1"
kind = "thesis"
data = "real"
statement = "MAP is 0.46"
experiment = "toy"
figure = ["MQ2007", "MAP", 1]
reproduces = true
"""
EXPECTED = "expected = 0.46\ntolerance = 0.01\n"


def claim(more: str = EXPECTED) -> Claim:
    return read_expectations(ENTRY + more).claims[0]


def verdict(value: float, **changes: object) -> Verdict:
    figures = {"toy": {"MQ2007": {"MAP": [0.0, value]}}}
    return judge([replace(claim(), **changes)], figures)[0]


@pytest.mark.parametrize(
    ("value", "reproduces", "words", "as_expected"),
    [
        (0.465, True, "reproduced", True),
        (0.475, False, "not reproduced", True),
        (0.475, True, "not reproduced, against expectation", False),
        (0.465, False, "reproduced, against expectation", False),
    ],
)
def test_claim_that_breaks_or_suddenly_holds_is_unexpected(value, reproduces, words, as_expected):
    judged = verdict(value, reproduces=reproduces)
    assert (str(judged), judged.as_expected) == (words, as_expected)


def test_changed_figure_is_unexpected_even_if_the_claim_holds():
    assert verdict(0.465, recorded=0.4649, max_drift=0.001).as_expected
    changed = verdict(0.465, recorded=0.455, max_drift=0.001)
    assert changed.holds
    assert not changed.as_expected
    assert str(changed) == "reproduced, but was 0.455 ± 0.001"


def test_nan_satisfies_no_claim():
    assert not verdict(float("nan")).holds
    assert not verdict(float("nan"), reproduces=False, recorded=0.46, max_drift=0.1).as_expected


def test_claims_support_ranges_and_differences():
    assert (claim("at_least = 1").low, claim("at_least = 1").high) == (1, float("inf"))
    assert (claim("at_most = 1").low, claim("at_most = 1").high) == (float("-inf"), 1)
    difference = claim(EXPECTED + 'minus = ["base"]')
    assert judge([difference], {"toy": {"MQ2007": {"MAP": [0, 1.5]}, "base": 1.0}})[0].value == 0.5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "holds for every number: give expected and tolerance, at_least or at_most"),
        (EXPECTED + "tolerence = 1", "unknown keys tolerence"),
        (EXPECTED + "recorded = 1", "give recorded and max_drift together, or neither"),
    ],
)
def test_invalid_entry_raises(more: str, message: str):
    with pytest.raises(ParameterError, match=message):
        claim(more)


def test_claim_that_does_not_reproduce_needs_a_reason():
    with pytest.raises(ParameterError, match="not expected to reproduce: give a reason"):
        read_expectations((ENTRY + EXPECTED).replace("true", "false"))


@pytest.mark.parametrize("wrong", [('kind = "thesis"', 'kind = "theory"'), ('data = "real"', 'data = "toy"')])
def test_claim_needs_a_kind_and_data(wrong: tuple[str, str]):
    with pytest.raises(ParameterError, match=r"needs a kind \(thesis, detail, setup\) and data \(real, generated\)"):
        read_expectations((ENTRY + EXPECTED).replace(*wrong))


def test_missing_figure_raises():
    with pytest.raises(ParameterError, match=r"toy has no figure \['MQ2007', 'MAP', 1\]: 'MAP' not found"):
        judge([claim()], {"toy": {"MQ2007": {}}})


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_cover_the_experiments_of_their_paper(paper: str):
    expected = expectations(paper)
    assert expected.command == f"python -m reproduction {paper}"
    assert {EXPERIMENTS[each.experiment].paper for each in expected.claims} == {paper}
    assert {each.name for each in EXPERIMENTS.values() if each.paper == paper} == {
        each.experiment for each in expected.claims
    }


def test_unknown_paper_raises():
    with pytest.raises(ParameterError, match="choose one of 'geng', 'local-models', 'atvt', 'sser'"):
        expectations("knn")
