from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.data.normalization import NORMALIZATIONS
from kinrank.engines.targets import TARGETS, Target, value_ranges
from kinrank.errors import DataError, ParameterError
from tests.engines.simulated_engines import ENGINES, clauses_for, scores
from tests.engines.target_cases import CASES, GOLDEN, MATCHES, RETRIEVERS

NAMES = ["a", "b", "c"]


def make(name: str) -> Target:
    target: Target = TARGETS.make(name)
    return target


@pytest.mark.parametrize("name", list(TARGETS))
def test_request_equals_golden_file(name: str) -> None:
    case = CASES[name]
    assert make(case.spec).request(case.weights, case.clauses) == json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.mark.parametrize("name", list(TARGETS))
def test_target_names_version_and_documentation(name: str) -> None:
    target = make(name)
    assert any(letter.isdigit() for letter in target.version)
    assert target.documentation.startswith("https://")
    assert target.version in str(type(target).__doc__) or target.version.split()[-1] in str(type(target).__doc__)


@pytest.mark.parametrize("name", list(TARGETS))
def test_invalid_weights_raise(name: str) -> None:
    case, target = CASES[name], make(CASES[name].spec)
    with pytest.raises(DataError, match="no weights given"):
        target.request({}, case.clauses)
    for value in (float("nan"), float("inf")):
        with pytest.raises(DataError, match="must be finite, got"):
            target.request({**case.weights, next(iter(case.weights)): value}, case.clauses)
    with pytest.raises(DataError, match="inverted feature 'nobody' has no weight"):
        target.request(case.weights, case.clauses, inverted=["nobody"])


@pytest.mark.parametrize("name", list(TARGETS))
def test_negative_weight_raises_if_the_engine_does_not_support_it(name: str) -> None:
    case, target = CASES[name], make(CASES[name].spec)
    first = next(iter(case.weights))
    weights = {**case.weights, first: -0.5}
    if target.allows_negative:
        assert "-0.5" in json.dumps(target.request(weights, case.clauses))
        return
    with pytest.raises(
        DataError,
        match=rf"not support negative weights, and the weight of '{first}' is -0\.5: learn with RankRLS\(nonn",
    ):
        target.request(weights, case.clauses)
    inverted = target.request(weights, case.clauses, inverted=[first])
    assert inverted == target.request({**case.weights, first: 0.5}, case.clauses)


@pytest.mark.parametrize("name", list(TARGETS))
def test_missing_or_unknown_clause_raises(name: str) -> None:
    case, target = CASES[name], make(CASES[name].spec)
    first, *rest = case.weights
    with pytest.raises(DataError, match=rf"for each feature: missing \['{first}'\], without a weight \['other'\]"):
        target.request(case.weights, {**{key: case.clauses[key] for key in rest}, "other": {}})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("elasticsearch-linear(size='ten')", "size must be int, got"),
        ("opensearch-hybrid(size=0)", "size must be a positive integer, got 0"),
        ("qdrant-formula(limit=True)", "limit must be int, got 'True'"),
        ("elasticsearch-linear(normalizer=zscore)", "normalizer must be 'none' | 'minmax' | 'l2_norm', got 'zscore'"),
    ],
)
def test_invalid_spec_raises(spec: str, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        make(spec)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("elasticsearch-linear", {"size": "ten"}, "size must be a positive integer, got 'ten'"),
        ("qdrant-formula", {"limit": True}, "limit must be a positive integer, got True"),
        ("opensearch-hybrid", {"technique": 3}, "technique must be a string, got 3"),
    ],
)
def test_invalid_setting_raises(name: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TARGETS[name](**settings)


def test_request_that_the_engine_does_not_support_raises() -> None:
    zeros = {"title": 0.0, "text": 0.0}
    with pytest.raises(DataError, match=r"OpenSearch 2\.10 needs weights that sum to 1, but all weights are 0"):
        make("opensearch-hybrid").request(zeros, MATCHES)
    with pytest.raises(DataError, match="at most 5 sub-queries, got 6"):
        make("opensearch-hybrid").request(dict.fromkeys("abcdef", 1.0), {name: {"match_all": {}} for name in "abcdef"})
    with pytest.raises(DataError, match="at least one prefetch to find points"):
        make("qdrant-formula").request({"votes": 1.0}, {"votes": "votes"})
    with pytest.raises(ParameterError, match="normalizer must be one of 'none', 'minmax', 'l2_norm', got 'zscore'"):
        TARGETS["elasticsearch-linear"](normalizer="zscore").request({"title": 1.0, "text": 0.0}, RETRIEVERS)
    with pytest.raises(ParameterError, match="window must be at least size, got 5 and 10"):
        make("elasticsearch-linear(window=5)").request({"title": 1.0, "text": 0.0}, RETRIEVERS)
    with pytest.raises(DataError, match="ranges has no entry for 'text'"):
        make("opensearch-hybrid").request({"title": 1.0, "text": 1.0}, MATCHES, ranges={"title": (0.0, 1.0)})
    with pytest.raises(DataError, match="range of 'title' is below its minimum, got 1 to 0"):
        make("opensearch-hybrid").request(
            {"title": 1.0, "text": 1.0}, MATCHES, ranges={"title": (1, 0), "text": (0, 1)}
        )


@pytest.mark.parametrize("spec", [*TARGETS, "elasticsearch-linear(normalizer='minmax')"])
@given(seed=st.integers(0, 2**32 - 1))
def test_engine_ranks_by_the_weighted_sum(spec: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = np.abs(rng.standard_normal((30, 3))) * 10.0 ** rng.integers(-2, 3, 3)
    X[rng.random(X.shape) < 0.3] = 0.0  # clauses do not match
    weights = rng.standard_normal(3) / np.ptp(X, axis=0)
    target = make(spec)
    inverted = [] if target.allows_negative else [name for name, w in zip(NAMES, weights, strict=True) if w < 0]
    # The clause of an inverted feature scores a constant minus the feature.
    clause_scores = np.where(np.isin(NAMES, inverted), 1.0 + X.max(axis=0) - X, X)
    request = target.request(
        dict(zip(NAMES, weights.tolist(), strict=True)),
        clauses_for(spec, NAMES),
        ranges=value_ranges(NAMES, X),
        inverted=inverted,
    )
    along = (X @ weights)[np.argsort(-scores(spec, request, clause_scores))]
    slack = 0.001 if spec == "opensearch-hybrid" else 1e-9  # OpenSearch sets the lowest score of a sub-query to 0.001
    worst = np.max(along - np.minimum.accumulate(along))
    assert worst <= slack * np.sum(np.abs(weights) * np.ptp(X, axis=0))


@pytest.mark.parametrize(
    ("spec", "candidates", "keeps_order"),
    [
        ("opensearch-hybrid", "", False),
        ("opensearch-hybrid", "filter", False),  # OpenSearch does not return hits with score 0
        ("opensearch-hybrid", "must", True),
        ("elasticsearch-linear(normalizer='minmax')", "", False),
        ("elasticsearch-linear(normalizer='minmax')", "filter", True),
        ("elasticsearch-linear(normalizer='minmax')", "must", True),
    ],
)
def test_normalized_scores_keep_the_order_if_every_clause_returns_every_candidate(
    spec: str, candidates: str, keeps_order: bool
) -> None:
    X = np.array([[0.0, 1.0], [9.0, 5.0], [10.0, 3.0]])  # sums 1, 14 and 13; matches of "a" score 9 to 10
    request = make(spec).request(
        {"a": 1.0, "b": 1.0}, clauses_for(spec, ["a", "b"], candidates), ranges=value_ranges(["a", "b"], X)
    )
    assert (np.argsort(-scores(spec, request, X)).tolist() == [1, 2, 0]) is keeps_order


def test_missing_values_count_as_zero_in_ranges() -> None:
    X = np.array([[np.nan, 2.0, np.nan], [3.0, -1.0, np.nan]])
    assert value_ranges(NAMES, X) == {"a": (0.0, 3.0), "b": (-1.0, 2.0), "c": (0.0, 0.0)}


@pytest.mark.parametrize("name", list(TARGETS))
def test_weights_for_normalized_scores_need_the_same_normalization(name: str) -> None:
    case, target = CASES[name], make(CASES[name].spec)
    positive = {feature: abs(weight) for feature, weight in case.weights.items()}
    for normalization in NORMALIZATIONS:
        if target.normalization == normalization:
            ranges = dict.fromkeys(positive, (0.0, 9.0))  # not used: the engine normalizes
            request = target.request(positive, case.clauses, normalization=normalization, ranges=ranges)
            assert request == target.request(positive, case.clauses)
        else:
            with pytest.raises(
                DataError, match=f"weights are for {normalization} scores, and .* (adds raw|normalizes)"
            ):
                target.request(positive, case.clauses, normalization=normalization)


def test_normalization_is_a_setting() -> None:
    assert make("opensearch-hybrid(technique='z_score')").normalization == "z_score"
    assert make("elasticsearch-linear(normalizer='l2_norm')").normalization == "l2"
    processors = make("opensearch-hybrid(technique='l2')").request({"title": 1.0, "text": 1.0}, MATCHES)
    assert '"normalization": {"technique": "l2"}' in json.dumps(processors)


def test_every_target_has_a_case_and_a_simulated_engine() -> None:
    assert set(CASES) == set(TARGETS)
    assert set(ENGINES) == set(TARGETS)


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "elasticsearch-linear"])
def test_boosts_raise_if_the_engine_does_not_support_them(name: str) -> None:
    case = CASES[name]
    with pytest.raises(DataError, match="cannot boost single documents in this request, and 1 have boosts: use"):
        TARGETS.make(case.spec).request(case.weights, case.clauses, boosts={"d1": 2.0})


def test_linear_retriever_lifts_documents_and_finds_them() -> None:
    case = CASES["elasticsearch-linear"]
    plain = TARGETS.make(case.spec).request(case.weights, case.clauses)
    boosted = TARGETS.make(case.spec).request(case.weights, case.clauses, boosts={"d1": 2.0, "d2": -1.0})
    *parts, last = boosted["retriever"]["linear"]["retrievers"]
    assert parts == plain["retriever"]["linear"]["retrievers"]
    (clause,) = last["retriever"]["standard"]["query"]["bool"]["should"]
    assert (clause["constant_score"], last["weight"]) == ({"filter": {"ids": {"values": ["d1"]}}, "boost": 2.0}, 1.0)
