from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from kinrank.engines import FeatureSet
from kinrank.engines.features import (
    FieldValue,
    Match,
    MultiMatch,
    QueryLength,
    RawClause,
    check_fields,
    required_fields,
)
from kinrank.errors import EngineRefusedError, FileFormatError, ParameterError

EXAMPLE = Path(__file__).parents[2] / "examples" / "movies" / "features.toml"


def test_features_keep_the_order_of_the_file():
    features = FeatureSet.parse('[features]\nb = { match = "title" }\na = { field = "votes" }')
    assert features.names == ("b", "a")
    assert features.features == (Match("b", field="title"), FieldValue("a", field="votes"))
    assert features.candidates is None


def test_tutorial_feature_file_is_valid():
    features = FeatureSet.read(EXAMPLE)
    assert len(features.names) == 26
    assert features.candidates is not None
    assert isinstance(features.candidates.text, MultiMatch)


def test_fingerprint_depends_on_the_meaning_only():
    one = FeatureSet.parse('[features]\na = { match = "title" }')
    same = FeatureSet.parse('# a comment\n[features.a]\nmatch = "title"\n')
    other = FeatureSet.parse('[features]\na = { match = "title", operator = "and" }')
    assert one.fingerprint == same.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[features", "invalid TOML"),
        ("", "no features: expected a table"),
        ("[features]", "no features: expected a table"),
        ("[feature]\na = 1", "unknown key 'feature'; expected search, features"),
        ("[features]\na = 1", "a: expected exactly one of match, multi_match"),
        ("[features]\na = {}", "a: expected exactly one of match"),
        ('[features]\na = { match = "t", field = "v" }', "got match and field"),
        ('[features]\na = { match = "t", slop = 1 }', "a: unknown key 'slop'; expected missing, max, operator"),
        ('[features]\na = { match = ["t"] }', "a: match must be a string, got \\['t'\\]"),
        ('[features]\na = { match = "" }', "a: match must not be empty"),
        ("[features]\na = { multi_match = [] }", "a: multi_match must not be empty"),
        ("[features]\na = { multi_match = [1] }", "a: multi_match must be a list of strings"),
        ('[features]\na = { multi_match = ["t"], type = "cross_fields" }', "a: type must be 'best_fields' or"),
        ('[features]\na = { match = "t", operator = "xor" }', "a: operator must be 'or' or 'and', got 'xor'"),
        ('[features]\na = { match = "t", missing = 0 }', "a: missing must be 'zero' or 'nan', got 0"),
        ('[features]\na = { match = "t", max = -1 }', "a: max must be positive, got -1"),
        ('[features]\na = { match = "t", max = true }', "a: max must be a number, got True"),
        ('[features]\na = { phrase = "t", slop = 1.5 }', "a: slop must be an integer, got 1.5"),
        ('[features]\na = { query_length = "lines" }', "a: query_length must be 'words' or 'characters'"),
        ('[features]\na = { clause = "t" }', "a: clause must be a table"),
        (
            '[features]\na = { clause = { term = { tag = "{{title}}" } } }',
            r"a: unknown placeholder \{\{title\}\}; available: \{\{text\}\}",
        ),
        ('[features]\nqid = { match = "t" }', "qid: the names qid, y, doc_id and query.NAME are reserved.*rename"),
        ('[features]\ny = { field = "v" }', "y: the names qid"),
        ('[features]\ndoc_id = { field = "v" }', "doc_id: the names qid"),
        ('[features]\n"query.x" = { match = "t" }', "query.x: the names qid"),
        ('search = 1\n[features]\na = { match = "t" }', "search must be a table"),
        ('[search]\nfield = "votes"\n[features]\na = { match = "t" }', "search needs one of match, multi_match"),
        ('[search]\nmatch = "t"\nnearest = 0\n[features]\na = { match = "t" }', "nearest must be at least 1"),
    ],
)
def test_invalid_file_raises(text: str, problem: str):
    with pytest.raises(FileFormatError, match=f"^my.toml: .*{problem}"):
        FeatureSet.parse(text, "my.toml")


def test_query_is_filled_into_a_raw_clause():
    (feature,) = FeatureSet.parse('[features]\na = { clause = { terms = { tag = ["{{text}}", "x"] } } }').features
    assert isinstance(feature, RawClause)
    assert feature.clause('say "hi"') == {"terms": {"tag": ['say "hi"', "x"]}}


def test_raw_clause_with_negative_weight_needs_a_maximum_score():
    unbounded, bounded = RawClause("a", body={}), RawClause("a", body={}, max=9.0)
    assert bounded.max_score("x") == 9.0
    with pytest.raises(ParameterError, match=r"'a' has a negative weight.*set max"):
        unbounded.max_score("x")


def test_maximum_score_grows_with_terms_and_boosts():
    assert Match("a", field="t").max_score("one two") == 2 * Match("a", field="t").max_score("one")
    assert MultiMatch("a", fields=["t^3", "u"]).max_score("one") == 4 * Match("a", field="t").max_score("one")


@pytest.mark.parametrize(("transform", "stored"), [("log1p", -1.0), ("log1p", -7.0), ("sqrt", -0.5)])
def test_value_outside_the_domain_of_the_transform_is_missing(transform: Literal["log1p", "sqrt"], stored: float):
    feature = FieldValue("a", field="f", transform=transform)
    np.testing.assert_array_equal(feature.values([stored, 0.0, np.nan]), [np.nan, 0.0, np.nan])
    assert feature.expression == (
        f"doc['f'].size() == 0 || !Double.isFinite(Math.{transform}((double) doc['f'].value)) ? 0 : "
        f"Math.{transform}((double) doc['f'].value)"
    )


def test_options_that_are_not_set_are_left_out_of_the_clause():
    assert MultiMatch("a", fields=["t^2"], tie_breaker=0.5).clause("red") == {
        "multi_match": {
            "query": "red",
            "fields": ["t^2"],
            "type": "best_fields",
            "operator": "or",
            "tie_breaker": 0.5,
        }
    }


def test_required_fields_of_all_kinds():
    features = FeatureSet.parse("""
[search]
multi_match = ["title^3", "tags.*"]
vector = "embedding"
[features]
body = { phrase = "body" }
near = { vector = "near" }
votes = { field = "votes" }
words = { query_length = "words" }
""")
    assert [(field.name, field.used_by, field.kind) for field in required_fields(features)] == [
        ("embedding", "[search]", "a vector"),
        ("body", "feature 'body'", None),
        ("near", "feature 'near'", "a vector"),
        ("votes", "feature 'votes'", "a number"),
        ("title", "[search]", None),
    ]


def test_field_that_is_not_in_the_index_raises():
    required = required_fields(FeatureSet.parse('[features]\na = { match = "titel" }'))
    with pytest.raises(EngineRefusedError, match=r"'a' uses field 'titel', which index 'movies' does not have"):
        check_fields(required, {"title": {"text": {}}}, "movies")


def test_boolean_field_is_not_a_number():
    required = required_fields(FeatureSet.parse('[features]\na = { field = "sold" }'))
    check_fields(required, {"sold": {"integer": {}}}, "cars")
    with pytest.raises(
        EngineRefusedError, match=r"'sold' as a number, but in index 'cars' it is of type boolean: .* a script"
    ):
        check_fields(required, {"sold": {"boolean": {}}}, "cars")


def test_query_length():
    assert QueryLength("a").value("the red  car") == 3
    assert QueryLength("a", unit="characters").value("red") == 3
