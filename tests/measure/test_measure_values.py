"""Equality, text form and errors of measures."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import measure as package
from kinrank.errors import DataError, ParameterError
from kinrank.measure import AP, DCG, ERR, LETOR_MAP, LETOR_NDCG, MEAN_NDCG_GENG, MEASURES, NDCG, RR, P, parse_measure


def test_measures_are_hashable_and_equal_by_value() -> None:
    assert NDCG @ 10 == NDCG @ 10
    assert len({NDCG @ 10, NDCG(k=10), NDCG @ 5, DCG @ 10}) == 3
    assert NDCG @ 10 != DCG @ 10
    assert NDCG.k is None, "a cutoff must not change the measure itself"
    assert LETOR_MAP == AP


def test_repr_shows_conventions_that_are_not_default() -> None:
    assert repr(NDCG) == "NDCG"
    assert repr(NDCG @ 10) == "NDCG @ 10"
    assert repr(LETOR_NDCG @ 10) == "NDCG(discount='letor', short_lists='zero') @ 10"
    assert repr(ERR(max_grade=2, ties="doc_id")) == "ERR(ties='doc_id', max_grade=2)"
    assert str(LETOR_NDCG @ 10) == "NDCG@10"
    assert str(MEAN_NDCG_GENG) == "MeanNDCG@10"


@pytest.mark.parametrize(
    "measure", [NDCG(gain="linear") @ 3, LETOR_NDCG, P(relevant_from=1.5) @ 5, MEAN_NDCG_GENG, RR(no_relevant="skip")]
)
def test_repr_can_be_parsed_and_evaluated(measure: package.Measure) -> None:
    assert parse_measure(repr(measure)) == measure
    assert eval(repr(measure), vars(package)) == measure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NDCG@10", NDCG @ 10),
        ("ndcg@10", NDCG @ 10),
        ("MAP", AP),
        ("MRR @ 10", RR @ 10),
        ("NDCG(discount=letor,no_relevant=0)@10", NDCG(discount="letor") @ 10),
        ("P(relevant_from=2)@5", P(relevant_from=2) @ 5),
        ("letor_ndcg@10", LETOR_NDCG @ 10),
        (" NDCG ( gain = 'linear' ) ", NDCG(gain="linear")),
        ("AP()", AP),
    ],
)
def test_parse_measure(text: str, expected: package.Measure) -> None:
    assert parse_measure(text) == expected


def test_every_registered_name_is_parsed() -> None:
    for name in MEASURES:
        assert parse_measure(name) == getattr(package, name) == MEASURES[name]


def test_unknown_attribute_raises() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NDGC'"):
        package.NDGC  # noqa: B018


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NDGC@10", "unknown measure 'NDGC': choose one of 'NDCG', 'DCG'"),
        ("NDCG@0", "the cutoff must be a whole number from 1, got NDCG @ 0"),
        ("NDCG@-1", "cannot read measure"),
        ("NDCG(gain)@1", "cannot read measure 'NDCG.gain.': write settings as name=value, got 'gain'"),
        ("NDCG(gian=linear)", "NDCG has no convention 'gian': choose one of k, ties"),
        ("AP(gain=linear)", "AP has no convention 'gain'"),
        ("NDCG(gain=cubic)", "gain must be one of 'exp2', 'linear', got 'cubic'"),
        ("NDCG(discount=log)", "discount must be one of 'standard', 'letor', 'geng', got 'log'"),
        ("NDCG(short_lists=1)", "short_lists must be one of"),
        ("NDCG(no_relevant=2)", "no_relevant must be one of 0, 1, 'skip', got 2"),
        ("NDCG(ties=random)", "ties must be one of"),
        ("P(relevant_from=0)", "relevant_from must be a grade above 0"),
        ("P(relevant_from=high)", "relevant_from must be a grade above 0"),
        ("ERR(max_grade=0)", "max_grade must be a whole number from 1"),
        ("ERR(ties=average)", "ERR does not support ties='average'"),
        ("", "cannot read measure ''"),
    ],
)
def test_invalid_measure_raises(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_measure(text)


def test_fractional_cutoff_raises() -> None:
    with pytest.raises(ParameterError, match=r"whole number from 1, got NDCG @ 2\.5"):
        NDCG @ 2.5


@pytest.mark.parametrize(
    ("scores", "y", "offsets", "message"),
    [
        ([1.0, np.nan, 0.0], [0, 1, 0], [0, 1, 3], "scores of query 1, row 1 is nan"),
        ([1.0, np.inf, 0.0], [0, 1, 0], [0, 2, 3], "scores of query 0, row 1 is inf"),
        ([1.0, 2.0, 0.0], [0, 1, np.nan], [0, 2, 3], "y of query 1, row 2 is nan"),
        ([1.0, 2.0, 0.0], [0, -1, 1], [0, 2, 3], "y of query 0, row 1 is -1.0, but grades start at 0"),
        ([1.0, 2.0], [0, 1, 1], [0, 2, 3], r"scores must have one value per row \(3 by the offsets\)"),
        ([1.0, 2.0, 0.0], [0, 1], [0, 2, 3], "y must have one value per row"),
        ([1.0, 2.0, 0.0], [0, 1, 1], [1, 3], "offsets must be whole numbers from 0"),
        ([1.0, 2.0, 0.0], [0, 1, 1], [0, 3, 2, 3], "offsets must not decrease, got 3 then 2 at query 1"),
        ([1.0], [2000], [0, 1], "grade 2000 is too large for the gain"),
    ],
)
def test_invalid_data_raises(scores: object, y: object, offsets: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        NDCG.per_query(scores, y, offsets)


def test_grade_above_max_grade_raises() -> None:
    with pytest.raises(DataError, match=r"grade 5 is above max_grade=4.*ERR\(max_grade=5\)"):
        ERR.per_query([1.0], [5], [0, 1])


def test_ties_by_document_id_without_ids_raises() -> None:
    with pytest.raises(ParameterError, match="needs document ids"):
        NDCG(ties="doc_id").per_query([1.0], [1], [0, 1])
    with pytest.raises(DataError, match=r"one id per row \(1\), got 2"):
        NDCG(ties="doc_id").per_query([1.0], [1], [0, 1], ["a", "b"])


def test_document_ids_are_compared_as_text() -> None:
    # as in trec_eval: "9" comes after "10", and the last id is first
    assert (P(ties="doc_id") @ 1).per_query([0.0, 0.0], [1, 0], [0, 2], [9, 10]).tolist() == [1.0]
