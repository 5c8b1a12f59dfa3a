from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from kinrank import folder
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.kin import Describer, make_describer

ALL = {"mean": 1.0, "std": 1.0, "max": 0.5, "min": 1.0, "q25": 1.0, "size": 0.5, "predictors": 1.0, "text": 2.0}


@pytest.fixture
def queries() -> QuerySet:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 80, 60)
    X = rng.gamma(2.0, size=(sizes.sum(), 4)) * [1, 10, 0.1, 1000]
    return QuerySet.from_arrays(
        X, group=sizes, feature_names=["bm25", "b", "c", "d"], query_columns={"words": rng.integers(1, 9, 60)}
    )


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((60, 7))


def test_mean_matches_the_paper(queries: QuerySet) -> None:
    points = Describer("mean", reference="bm25", depth=5).fit(queries).transform(queries)
    means = np.array([q.X[np.argsort(-q.X[:, 0], kind="stable")[:5]].mean(axis=0) for q in queries])
    expected = (means - means.mean(axis=0)) / means.std(axis=0) / np.sqrt(4)
    np.testing.assert_allclose(points, expected, atol=1e-5)
    assert points.dtype == np.float32


def test_block_variance_is_its_squared_weight(queries: QuerySet, vectors: np.ndarray) -> None:
    describer = Describer({"mean": 1.0, "size": 0.3, "text": 2.0, "column:words": 0.7})
    points = describer.fit(queries, vectors).transform(queries, vectors)
    spread = points.var(axis=0)
    blocks = np.array([name.split("(")[0] for name in describer.names])
    for block, weight in {"mean": 1.0, "size": 0.3, "text": 2.0, "column:words": 0.7}.items():
        assert spread[blocks == block].sum() == pytest.approx(weight**2, rel=1e-4)


def test_single_queries_equal_a_batch(queries: QuerySet, vectors: np.ndarray) -> None:
    describer = Describer(ALL, reference="bm25", n_components={"text": 3}).fit(queries, vectors)
    batch = describer.transform(queries, vectors)
    for i in range(len(queries)):
        np.testing.assert_allclose(describer.transform(queries[i], vectors[i : i + 1])[0], batch[i], atol=1e-6)


def test_transform_does_not_depend_on_other_queries(queries: QuerySet) -> None:
    describer = Describer("summaries", reference=0).fit(queries[:30])
    first = describer.transform(queries[:30])
    np.testing.assert_array_equal(describer.transform(queries)[:30], first)


def test_state_round_trips_through_a_folder(queries: QuerySet, vectors: np.ndarray, tmp_path: Path) -> None:
    describer = Describer(ALL, reference="bm25", n_components=9).fit(queries, vectors)
    folder.write(tmp_path / "d", "model", describer.get_params(), describer.get_state())
    meta, arrays = folder.read(tmp_path / "d", "model")
    restored = Describer(**meta).set_state(arrays)
    np.testing.assert_array_equal(restored.transform(queries, vectors), describer.transform(queries, vectors))
    assert restored.names == describer.names
    assert json.dumps(clone(describer).get_params())


def test_names_match_dimensions(queries: QuerySet, vectors: np.ndarray) -> None:
    describer = Describer("summaries+text+column:words", reference="bm25").fit(queries, vectors)
    assert len(describer.names) == describer.transform(queries, vectors).shape[1]
    assert describer.names[:2] == ("mean(bm25)", "mean(b)")
    assert "predictors(nqc)" in describer.names
    assert describer.names[-2:] == ("text(6)", "column:words")
    assert Describer("mean", n_components=2).fit(queries).names == ("direction(0)", "direction(1)")
    assert describer.get_feature_names_out().tolist() == list(describer.names)


def test_missing_values_are_ignored(queries: QuerySet) -> None:
    X = queries.X.copy()
    X[::3, 1] = np.nan
    X[queries.offsets[4] : queries.offsets[5], 2] = np.nan  # feature c is unknown for one query
    X[:, 3] = np.nan  # feature d is unknown for all
    holed = queries.replace(X=X)
    describer = Describer("mean+std", reference="bm25").fit(holed)
    points = dict(zip(describer.names, describer.transform(holed).T, strict=True))
    assert np.isfinite(list(points.values())).all()
    assert points["mean(c)"][4] == 0.0
    assert (points["mean(d)"] == 0.0).all()


def test_constant_training_features_are_ignored(queries: QuerySet) -> None:
    X = queries.X.copy()
    X[:, 3] = 7.3
    describer = Describer("mean").fit(queries.replace(X=X))
    assert (describer.transform(queries)[:, 3] == 0.0).all()
    assert describer.transform(queries.replace(X=X)).var(axis=0).sum() == pytest.approx(1.0, rel=1e-4)


def test_huge_features_give_finite_points(queries: QuerySet) -> None:
    describer = Describer("mean").fit(queries)
    broken = queries.replace(X=np.full_like(queries.X, 3e38))
    assert (np.abs(describer.transform(broken)) <= 1e6).all()


def test_vectors_by_id_equal_vectors_in_order(queries: QuerySet, vectors: np.ndarray) -> None:
    describer = Describer("text").fit(queries, vectors)
    by_id = {int(qid): vector for qid, vector in zip(queries.qid, vectors, strict=True)}
    np.testing.assert_array_equal(
        describer.transform(queries[::-1], by_id)[::-1], describer.transform(queries, vectors)
    )


def test_bad_vectors_raise(queries: QuerySet, vectors: np.ndarray) -> None:
    describer = Describer("mean+text").fit(queries, vectors)
    with pytest.raises(DataError, match="pass query_vectors="):
        describer.transform(queries)
    with pytest.raises(DataError, match=r"one row per query \(60\).*got shape \(59, 7\)"):
        describer.transform(queries, vectors[1:])
    with pytest.raises(DataError, match="no vector for query 0"):
        describer.transform(queries, {"0": vectors[0]})
    with pytest.raises(DataError, match="'text' was fitted with 7 values per query, got 6"):
        describer.transform(queries, vectors[:, 1:])
    with pytest.raises(DataError, match="numeric vectors of the same length"):
        describer.transform(queries[:2], [[1.0, 2.0], [1.0]])
    vectors[3, 2] = np.nan
    with pytest.raises(DataError, match=r"vector of query .*3.* has missing values"):
        describer.transform(queries, vectors)


def test_bad_settings_raise(queries: QuerySet) -> None:
    with pytest.raises(ParameterError, match=r"reference 'bm26' is not a feature: set reference= to .* out of bm25, b"):
        Describer(reference="bm26").fit(queries)
    with pytest.raises(ParameterError, match="a column from 0 to 3, got 4"):
        Describer(reference=4).fit(queries)
    with pytest.raises(ParameterError, match="depth must be at least 1"):
        Describer(depth=0).fit(queries)
    with pytest.raises(ParameterError, match="n_components must be at least 1"):
        Describer(n_components=0).fit(queries)
    with pytest.raises(ParameterError, match=r"n_components names unknown blocks \['max'\]"):
        Describer(n_components={"max": 2}).fit(queries)
    with pytest.raises(ParameterError, match="not fitted"):
        Describer().transform(queries)
    with pytest.raises(DataError, match="at least one"):
        Describer().fit(queries[:0])


def test_bad_data_raise(queries: QuerySet) -> None:
    describer = Describer("mean").fit(queries)
    with pytest.raises(DataError, match="fitted on 4 features, got 3"):
        describer.transform(QuerySet.from_arrays(queries.X[:, :3], group=queries.sizes))
    with pytest.raises(DataError, match=r"uses the query column 'length'.*'words'"):
        Describer("column:length").fit(queries)
    texts = queries.replace(query_columns={"text": np.array(["a"] * 60)})
    with pytest.raises(DataError, match="must be numeric"):
        Describer("column:text").fit(texts)


def test_make_describer_returns_a_new_one() -> None:
    assert make_describer("mean+std", reference=3).get_params()["reference"] == 3
    given = Describer("max", depth=7)
    copied = make_describer(given, reference="ignored")
    assert copied is not given
    assert copied.get_params() == given.get_params()


def test_distances_between_texts_do_not_depend_on_the_basis_of_the_vectors() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)) * [3.0, 1.0, 0.1, 0.01]
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    queries = QuerySet.from_arrays(rng.normal(size=(30, 2)), group=[1] * 30)
    describer = Describer("text")
    distances = [
        np.linalg.norm(points[:, None] - points[None], axis=2)
        for each in (vectors, vectors @ turn)
        for points in [describer.fit(queries, query_vectors=each).transform(queries, query_vectors=each)]
    ]
    np.testing.assert_allclose(distances[0], distances[1], rtol=1e-4, atol=1e-6)


def test_rows_sorted_by_grade_are_refused_if_the_first_ones_describe_a_query():
    rng = np.random.default_rng(0)
    grades = np.sort(rng.integers(0, 3, (30, 60)))[:, ::-1]
    queries = QuerySet.from_arrays(rng.random((1800, 2)), grades.ravel(), group=[60] * 30)
    with pytest.raises(DataError, match="sorted by grade in 30 of the 30 queries with more than 50 candidates"):
        Describer("summaries").fit(queries)
    for fine in (Describer("summaries", reference=0), Describer("mean", depth=60), Describer(["size"])):
        fine.fit(queries)
    Describer("summaries").fit(queries.replace(y=rng.permutation(queries.grades)))
    Describer("summaries").fit(queries.replace(y=None))
