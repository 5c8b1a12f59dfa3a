"""Columns of memory: what they sum, and that folds do not give grades away as leaving out one query does."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.errors import DataError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired
from kinrank.memory.columns import N_FOLDS, PARTS, QueryMemory, column_names
from kinrank.memory.kin import families_of


def judged(texts: list[str], documents: list[list[str]], grades: list[list[float]], **columns: list[str]) -> QuerySet:
    sizes = [len(own) for own in documents]
    return QuerySet.from_arrays(
        np.zeros((sum(sizes), 1)),
        np.concatenate(grades),
        group=sizes,
        doc_id=np.concatenate(documents),
        query_columns={"text": texts},
        doc_columns=columns,
    )


@pytest.fixture
def known() -> QuerySet:
    return judged(
        ["toy story", "toy story", "toy story 2", "heat"],
        [["a", "b"], ["a"], ["a", "c"], ["c", "b"]],
        [[2, 0], [1], [2, 2], [2, 0]],
        site=["x", "y", "x", "x", "x", "x", "y"],
    )


def of_candidate(memory: QueryMemory, queries: QuerySet, row: int) -> dict[str, float]:
    return dict(zip(memory.names, memory.columns(queries)[row].tolist(), strict=True))


def test_columns_sum_what_queries_say(known: QuerySet):
    memory = QueryMemory.of(known, ["site"])
    asked = judged(["Toy  Story"], [["a", "b", "z"]], [[0, 0, 0]], site=["x", "y", "x"])
    a, b, z = (of_candidate(memory, asked, row) for row in range(3))
    assert (a["query_asked"], a["query_good"]) == (2, 1.5)
    assert (b["query_asked"], b["query_good"]) == (1, 0)
    assert (a["everyone_asked"], a["everyone_good"], a["everyone_rate"]) == (3, 2.5, pytest.approx(2.5 / 4))
    _, similarities = memory.nearest(memory.asked(asked))
    w = similarities[0, 0]
    assert a["kin_nearest_good"] == pytest.approx(w)
    assert a["kin_good"] == pytest.approx(w**2)
    assert a["kin_rate"] == pytest.approx(w**2 / (w**2 + 0.05), rel=1e-5)
    assert a["kin_count"] == 1
    assert b["kin_good"] == b["kin_count"] == 0  # "heat" is like nothing
    assert z["everyone_asked"] == z["chosen_for"] == 0
    assert z["site_query_asked"] == a["site_query_asked"] == 2  # the same site
    assert b["site_query_good"] == 0
    assert 0 < b["chosen_for"] <= a["chosen_for"] or b["chosen_for"] == 0
    assert a["chosen_for_share"] <= 1


def test_a_key_counts_once_per_query(known: QuerySet):
    memory = QueryMemory.of(known, ["site"])
    asked = judged(["heat dvd"], [["q"]], [[0]], site=["x"])
    found = of_candidate(memory, asked, 0)
    assert found["site_everyone_asked"] == 4  # of four queries, though one has two such documents
    assert found["site_kin_count"] == pytest.approx(1.0)


def test_names_are_of_parts():
    assert len(column_names()) == sum(len(names) for names in PARTS.values())
    assert column_names(["site"])[-1] == "site_query_good"


def test_cross_fitted_columns_are_those_of_other_folds(known: QuerySet):
    memory = QueryMemory.of(known, ["site"])
    fold = np.array([0, 1, 0, 1])
    found = memory.cross_fitted(fold, known)
    for number in (0, 1):
        others = memory.take(fold != number)
        rows = np.repeat(fold == number, known.sizes)
        np.testing.assert_allclose(found[rows], others.columns(known[fold == number]), atol=1e-6)


def test_in_time_only_earlier_queries_count(known: QuerySet):
    memory = QueryMemory.of(known)
    found = memory.cross_fitted(np.array([3, 1, 2, 1]), known, in_time=True)
    assert found[2:3].max() == 0  # the second query, a first one in time
    first = dict(zip(memory.names, found[0].tolist(), strict=True))
    assert (first["query_asked"], first["query_good"], first["everyone_asked"]) == (1, 0.5, 2)


def test_take_and_join_restore_all(known: QuerySet):
    memory = QueryMemory.of(known, ["site"])
    parts = memory.take(np.arange(4) < 2), memory.take(np.arange(4) >= 2)
    joined = parts[0].joined(parts[1])
    np.testing.assert_array_equal(joined.columns(known), memory.columns(known))
    others = memory.of_others(known[2:])
    np.testing.assert_array_equal(parts[0].joined(others).columns(known), memory.columns(known))


def test_state_restores_all(known: QuerySet):
    memory = QueryMemory.of(known, ["site"])
    restored = QueryMemory.from_state(memory.get_state())
    np.testing.assert_array_equal(restored.columns(known), memory.columns(known))
    assert restored.names == memory.names


def test_texts_ids_and_keys_are_needed(known: QuerySet):
    with pytest.raises(DataError, match="pass query_text"):
        QueryMemory.of(known.replace(query_columns={}))
    with pytest.raises(DataError, match="pass doc_id"):
        QueryMemory.of(known.replace(doc_id=None))
    with pytest.raises(DataError, match="no column 'brand'"):
        QueryMemory.of(known, ["brand"])


def null_world(seed: int, n_families: int = 60) -> QuerySet:
    """Return queries in families of near-duplicates. One feature tells what is relevant; who asked tells nothing."""
    rng = np.random.default_rng(seed)
    texts = [f"item{family:03d} offer {extra}" for family in range(n_families) for extra in ("", "new", "old")]
    documents = np.array([rng.choice(60, 20, replace=False) for _ in texts])
    signal = rng.normal(size=documents.shape)
    noisy = signal + rng.normal(size=documents.shape)
    grades = noisy >= np.sort(noisy)[:, -2:-1]
    return QuerySet.from_arrays(
        np.column_stack([signal.ravel(), documents.ravel()]),  # documents can be told apart by the second feature
        grades.ravel(),
        group=[20] * len(texts),
        doc_id=documents.ravel().astype(str),
        query_columns={"text": texts},
    )


def quality(train: QuerySet, test: QuerySet, *columns: np.ndarray) -> np.ndarray:
    """Return the NDCG@10 of test queries by trees that see further columns of train and test."""
    table = np.column_stack([train.X, *columns[:1]]), np.column_stack([test.X, *columns[1:]])
    trees = LambdaMART(60, n_leaves=15, min_rows_in_leaf=50).fit(train.replace(X=table[0], feature_names=()))
    return (NDCG @ 10).per_query(trees.predict(table[1]), test.grades, test.offsets)


def test_leaving_out_one_query_loses_where_folds_do_not():
    lost = []
    for seed in range(3):
        world = null_world(seed, 300)
        families = families_of(world.query_columns["text"])
        assert len(np.unique(families)) == 300
        held_out = families % 2 == 0
        train, test = world[~held_out], world[held_out]
        memory = QueryMemory.of(train)
        place = memory.names.index("everyone_good")
        later = memory.columns(test)[:, place]
        one_out = memory.columns(train)[:, place] - train.grades
        in_folds = memory.cross_fitted(np.random.default_rng(0).permutation(len(train)) % N_FOLDS, train)[:, place]
        alone = quality(train, test)
        both = [
            compare_paired(quality(train, test, own, later), alone, groups=families[held_out])
            for own in (one_out, in_folds)
        ]
        assert both[0].p < 0.01
        lost.append([found.mean_difference for found in both])
    by_one_out, by_folds = np.mean(lost, axis=0)
    assert by_one_out < -0.05
    # A fold holds a few other queries of the document, so a little of the leak is left.
    assert abs(by_folds) < 0.01


def test_null_runs_reject_as_often_as_they_should():
    rejected = 0
    for seed in range(200):
        world = null_world(seed)
        rng = np.random.default_rng(1000 + seed)
        # The same luck for all queries of a family, as near-duplicates have.
        luck = np.repeat(rng.normal(size=60), 3)
        first, second = luck + rng.normal(size=180) * 0.1, rng.normal(size=180) * 0.1
        found = compare_paired(first, second, groups=families_of(world.query_columns["text"]))
        rejected += found.p < 0.05
    assert 2 <= rejected <= 20
