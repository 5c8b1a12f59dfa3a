from __future__ import annotations

from dataclasses import replace

import pytest

from kinrank.errors import ParameterError
from reproduction import PAPERS
from reproduction.catalog import PARTS
from reproduction.claims import Claim, Verdict, expectations, judge, read_expectations

ENTRY = """
command = "python -m reproduction toy"
[[claim]]
where = "Table 1"
says = "MAP is 0.46"
part = "toy"
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
def test_a_claim_is_loud_both_when_it_breaks_and_when_it_suddenly_holds(value, reproduces, words, as_expected):
    found = verdict(value, reproduces=reproduces)
    assert (str(found), found.as_expected) == (words, as_expected)


def test_a_figure_that_has_changed_is_told_though_the_claim_holds():
    assert verdict(0.465, here=0.4649, within=0.001).as_expected
    changed = verdict(0.465, here=0.455, within=0.001)
    assert changed.holds
    assert not changed.as_expected
    assert str(changed) == "reproduced, but was 0.455 ± 0.001"


def test_a_figure_that_is_not_a_number_holds_for_no_claim():
    assert not verdict(float("nan")).holds
    assert not verdict(float("nan"), reproduces=False, here=0.46, within=0.1).as_expected


def test_ranges_and_differences():
    assert (claim("at_least = 1").low, claim("at_least = 1").high) == (1, float("inf"))
    assert (claim("at_most = 1").low, claim("at_most = 1").high) == (float("-inf"), 1)
    difference = claim(EXPECTED + 'minus = ["base"]')
    assert judge([difference], {"toy": {"MQ2007": {"MAP": [0, 1.5]}, "base": 1.0}})[0].value == 0.5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "true of every number: give expected and tolerance, at_least or at_most"),
        (EXPECTED + "tolerence = 1", "unknown keys tolerence"),
        (EXPECTED + "here = 1", "here and within go together"),
    ],
)
def test_an_entry_that_cannot_be_judged_is_refused(more: str, message: str):
    with pytest.raises(ParameterError, match=message):
        claim(more)


def test_what_does_not_reproduce_needs_a_reason():
    with pytest.raises(ParameterError, match="not expected to reproduce: give the reason"):
        read_expectations((ENTRY + EXPECTED).replace("true", "false"))


def test_a_figure_that_is_not_there_is_named():
    with pytest.raises(ParameterError, match=r"toy does not have: 'MAP' of \['MQ2007', 'MAP', 1\]"):
        judge([claim()], {"toy": {"MQ2007": {}}})


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_is_about_an_experiment_of_its_paper(paper: str):
    expected = expectations(paper)
    assert expected.command == f"python -m reproduction {paper}"
    assert {PARTS[each.part].paper for each in expected.claims} == {paper}
    assert {part.name for part in PARTS.values() if part.paper == paper} == {each.part for each in expected.claims}


def test_an_unknown_paper():
    with pytest.raises(ParameterError, match="choose one of 'geng', 'local-models', 'atvt', 'sser'"):
        expectations("knn")
