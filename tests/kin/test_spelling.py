"""Known texts by other spellings."""

from __future__ import annotations

import pytest

from kinrank.kin.spelling import Spellings

KNOWN = Spellings(["iron man", "frozen", "frozen 2", "top gun", "heat", "c++", "alien", "\u200b"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("irnoman", "iron man"),
        ("iron  mann", "iron man"),
        ("man iron", "iron man"),
        ("frozne", "frozen"),
        ("forzen 2", "frozen 2"),
        ("frozen 3", None),
        ("frozen2", "frozen 2"),
        ("topgun", "top gun"),
        ("aliens", "alien"),
        ("hear", None),
        ("c", None),
        ("iron maiden", None),
        ("Frozen", None),  # the same query
        ("", None),
        ("x" * 100_000, None),
    ],
)
def test_spelling_of_a_known_text(text: str, found: str | None) -> None:
    assert KNOWN.nearest(text) == found


def test_the_first_of_equally_good_texts_is_found() -> None:
    assert Spellings(["matrix", "matrixx"]).nearest("matrxi") == "matrix"
    assert Spellings(["matrixx", "matrix"]).nearest("matrixy") == "matrixx"
