from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from kinrank.measure import PairedComparison, compare_paired
from kinrank.study.report import charts


def parsed(markup: str) -> list[ElementTree.Element]:
    """Return both drawings of a chart."""
    return list(ElementTree.fromstring(f"<figure>{markup}</figure>"))


def texts(markup: str) -> list[str]:
    return [text.text or "" for text in parsed(markup)[0].iter("text")]


def gain(mean: float) -> tuple[str, PairedComparison]:
    return "a ranker", compare_paired(np.array([0.5, 0.6, 0.4]) + mean, np.array([0.5, 0.5, 0.5]))


def every_chart() -> dict[str, str]:
    rng = np.random.default_rng(0)
    return {
        "gain_bars": charts.gain_bars(rng.normal(size=40), "NDCG@10"),
        "intervals": charts.intervals([gain(0.1), gain(0.0), gain(-0.5)], "three rankers"),
    }


@pytest.mark.parametrize(("name", "markup"), every_chart().items(), ids=every_chart())
def test_charts_have_two_widths_and_a_text_alternative(name: str, markup: str):
    wide, narrow = parsed(markup)
    assert "wide" in wide.attrib["class"].split()
    assert "narrow" in narrow.attrib["class"].split()
    for drawing in (wide, narrow):
        assert drawing.attrib["role"] == "img"
        assert drawing.attrib["aria-label"]
        assert not [node for node in drawing.iter() if {"style", "fill", "stroke"} & set(node.attrib)]
        width = float(drawing.attrib["viewBox"].split()[2])
        for node in drawing.iter():
            for side in ("x", "x1", "x2", "cx"):
                assert -1 <= float(node.attrib.get(side, 0)) <= width + 1


def test_bars_count_wins_ties_and_losses():
    gains = np.array([0.5, 0.25, 0.0, 0.0, 0.0, -0.5])
    assert {"2 win", "3 tie", "1 lose"} <= set(texts(charts.gain_bars(gains, "AP")))


def test_bar_height_is_proportional_to_the_gain():
    (wide, _) = parsed(charts.gain_bars(np.array([1.0, 0.5, -1.0]), "AP"))
    won, lost = (node.attrib["d"] for node in wide.iter("path"))
    tops = [float(part.split("V")[1].split("H")[0]) for part in won.split("M")[1:]]
    zero = float(won.split()[1].split("V")[0])
    bottom = float(lost.split("V")[1].split("H")[0])
    assert zero - tops[0] == pytest.approx(2 * (zero - tops[1]), abs=0.2)
    assert bottom - zero == pytest.approx(zero - tops[0], abs=0.2)


@pytest.mark.parametrize("gains", [np.zeros(5), np.array([0.3]), np.array([-0.2, -0.1])])
def test_bars_with_only_ties_wins_or_losses(gains: np.ndarray):
    assert parsed(charts.gain_bars(gains, "AP"))


def test_size_of_the_chart_is_bounded():
    rng = np.random.default_rng(0)
    assert len(charts.gain_bars(rng.normal(size=1_000_000), "AP")) < 70_000


def test_intervals_are_marked_as_gain_loss_or_unsure():
    drawing = parsed(charts.intervals([gain(0.5), gain(-0.5), gain(0.0)], "rankers"))[0]
    kinds = [node.attrib["class"] for node in drawing.iter("circle")]
    assert kinds == ["dot gain", "dot loss", "dot unsure"]
