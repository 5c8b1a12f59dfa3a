from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kinrank.study.report.charts import Scale, element, escaped, padded

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(numbers, st.floats(1e-6, 1e6), st.integers(2, 10))
def test_ticks_are_few_and_within_the_range(low: float, length: float, about: int):
    assume(length > abs(low) * 1e-6)
    scale = Scale(low, low + length, 0, 100)
    ticks = scale.ticks(about)
    assert 1 <= len(ticks) <= about + 2
    assert ticks == sorted(ticks)
    assert min(map(scale, ticks)) >= -1e-6
    assert max(map(scale, ticks)) <= 100 + 1e-6


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_any_text_is_escaped(text: str):
    markup = element("g", element("text", escaped(text), aria_label=text))
    (child,) = ElementTree.fromstring(markup)
    assert child.text == (text or None)
    assert child.attrib == {"aria-label": text}


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [-1.0, 2.0]])
def test_padded_range_is_never_empty(values: list[float]):
    low, high = padded(values)
    assert low < min(values)
    assert max(values) < high
