from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from kinrank.engines import FeatureSet
from kinrank.engines.features import FieldValue, Match, MultiMatch, QueryLength, RawClause
from kinrank.engines.fields import check_fields, required_fields
from kinrank.errors import EngineRefusedError, FileFormatError, ParameterError

EXAMPLE = Path(__file__).parents[2] / "examples" / "movies" / "features.toml"


def test_features_are_in_the_order_of_the_file():
    features = FeatureSet.parse('[features]\nb = { match = "title" }\na = { field = "votes" }')
    assert features.names == ("b", "a")
    assert features.features == (Match("b", field="title"), FieldValue("a", field="votes"))
    assert features.candidates is None


def test_the_example_of_the_tutorial_is_read():
    features = FeatureSet.read(EXAMPLE)
    assert len(features.names) == 26
    assert features.candidates is not None
    assert isinstance(features.candidates.text, MultiMatch)


def test_two_files_that_mean_the_same_have_one_fingerprint():
    one = FeatureSet.parse('[features]\na = { match = "title" }')
    same = FeatureSet.parse('# a comment\n[features.a]\nmatch = "title"\n')
    other = FeatureSet.parse('[features]\na = { match = "title", operator = "and" }')
    assert one.fingerprint == same.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[features", "not TOML"),
        ("", "no features in it"),
        ("[features]", "no features in it"),
        ("[feature]\na = 1", "unknown key 'feature'; it takes search, features"),
        ("[features]\na = 1", "a: expected exactly one of match, multi_match"),
        ("[features]\na = {}", "a: expected exactly one of match"),
        ('[features]\na = { match = "t", field = "v" }', "got match and field"),
        ('[features]\na = { match = "t", slop = 1 }', "a: unknown key 'slop'; it takes"),
        ('[features]\na = { match = ["t"] }', "a: field must be a text, got \\['t'\\]"),
        ('[features]\na = { match = "" }', "a: match is empty"),
        ("[features]\na = { multi_match = [] }", "a: multi_match is empty"),
        ("[features]\na = { multi_match = [1] }", "a: fields must be a list of texts"),
        ('[features]\na = { multi_match = ["t"], type = "cross_fields" }', "a: type must be 'best_fields' or"),
        ('[features]\na = { match = "t", operator = "xor" }', "a: operator must be 'or' or 'and', got 'xor'"),
        ('[features]\na = { match = "t", missing = 0 }', "a: missing must be 'zero' or 'nan', got 0"),
        ('[features]\na = { match = "t", max = -1 }', "a: max must be positive, got -1"),
        ('[features]\na = { match = "t", max = true }', "a: max must be a number, got True"),
        ('[features]\na = { phrase = "t", slop = 1.5 }', "a: slop must be a whole number, got 1.5"),
        ('[features]\na = { query_length = "lines" }', "a: unit must be 'words' or 'characters'"),
        ('[features]\na = { clause = "t" }', "a: body must be a table"),
        ('[features]\nqid = { match = "t" }', "qid: no feature can be called qid, y, doc_id or query.NAME.*rename it"),
        ('[features]\ny = { field = "v" }', "y: no feature can be called"),
        ('[features]\ndoc_id = { field = "v" }', "doc_id: no feature can be called"),
        ('[features]\n"query.x" = { match = "t" }', "query.x: no feature can be called"),
        ('search = 1\n[features]\na = { match = "t" }', "search must be a table"),
        ('[search]\nfield = "votes"\n[features]\na = { match = "t" }', "search needs one of match, multi_match"),
        ('[search]\nmatch = "t"\nnearest = 0\n[features]\na = { match = "t" }', "nearest must be at least 1"),
    ],
)
def test_a_bad_file_is_told_what_is_wrong(text: str, problem: str):
    with pytest.raises(FileFormatError, match=f"^my.toml: .*{problem}"):
        FeatureSet.parse(text, "my.toml")


def test_a_clause_of_ones_own_has_the_query_put_in():
    (feature,) = FeatureSet.parse('[features]\na = { clause = { terms = { tag = ["{query}", "x"] } } }').features
    assert isinstance(feature, RawClause)
    assert feature.clause('say "hi"') == {"terms": {"tag": ['say "hi"', "x"]}}


def test_how_high_an_unknown_clause_scores_must_be_declared():
    unknown, known = RawClause("a", body={}), RawClause("a", body={}, max=9.0)
    assert known.largest("x") == 9.0
    with pytest.raises(ParameterError, match=r"'a' has a negative weight.*declare max"):
        unknown.largest("x")


def test_the_bound_of_a_text_grows_with_terms_and_boosts():
    assert Match("a", field="t").largest("one two") == 2 * Match("a", field="t").largest("one")
    assert MultiMatch("a", fields=["t^3", "u"]).largest("one") == 4 * Match("a", field="t").largest("one")


@pytest.mark.parametrize(("transform", "stored"), [("log1p", -1.0), ("log1p", -7.0), ("sqrt", -0.5)])
def test_a_number_that_the_transform_is_not_defined_for_is_missing(transform: Literal["log1p", "sqrt"], stored: float):
    feature = FieldValue("a", field="f", transform=transform)
    np.testing.assert_array_equal(feature.values([stored, 0.0, np.nan]), [np.nan, 0.0, np.nan])
    assert feature.expression == (
        f"doc['f'].size() == 0 || !Double.isFinite(Math.{transform}((double) doc['f'].value)) ? 0 : "
        f"Math.{transform}((double) doc['f'].value)"
    )


def test_a_boolean_is_no_number():
    wanted = required_fields(FeatureSet.parse('[features]\na = { field = "sold" }'))
    check_fields(wanted, {"sold": {"integer": {}}}, "cars")
    with pytest.raises(EngineRefusedError, match=r"'sold' as a number, but in index 'cars' it is boolean: .* a script"):
        check_fields(wanted, {"sold": {"boolean": {}}}, "cars")


def test_the_length_of_a_query():
    assert QueryLength("a").value("the red  car") == 3
    assert QueryLength("a", unit="characters").value("red") == 3
