"""Columns of memory: what they sum, and that folds do not give grades away as leaving out one query does."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.errors import DataError
from kinrank.kin.families import families_of
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired
from kinrank.memory.answers import Answers, Round
from kinrank.memory.columns import CHOSEN_MEANING, MEANING, N_FOLDS, PARTS, QueryMemory, column_names


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


def test_learning_one_by_one_equals_a_memory_made_of_the_same_queries():
    rng = np.random.default_rng(4)
    words = ["toy", "story", "frozen", "heat", "alien", "cast", "trailer", "part"]
    queries = judged(
        [f"{' '.join(rng.choice(words, 3))} {rng.integers(30)}" for _ in range(700)],
        [[f"d{n}" for n in [*rng.choice(40, 2, False), *40 + rng.choice(4000, 3, False)]] for _ in range(700)],
        [rng.integers(0, 3, 5).tolist() for _ in range(700)],
        site=[f"s{n}" for n in rng.integers(0, 9, 3500)],
    )
    fitted, asked = QueryMemory.of(queries[:500], ["site"]), queries[650:]
    one_by_one, kept = fitted, np.ones(600, dtype=np.bool_)
    before = fitted.columns(asked)
    for number in range(500, 600):
        one_by_one = one_by_one.joined(fitted.of_others(queries[number]))
        if number % 3 == 0:
            place = int(rng.choice(np.flatnonzero(kept[: number + 1])))
            kept[place] = False
            one_by_one = one_by_one.without(np.array([place]))
    assert len(one_by_one.sums) > 1
    others = fitted.of_others(queries[500:600][np.flatnonzero(kept[500:])])
    joined = fitted.take(kept[:500]).joined(others)
    at_once = joined.take(np.arange(len(joined)))
    np.testing.assert_array_equal(one_by_one.columns(asked), at_once.columns(asked))
    restored = QueryMemory.from_state(one_by_one.get_state())
    np.testing.assert_array_equal(restored.columns(asked), at_once.columns(asked))
    gone = set(queries.query_columns["text"][:600][~kept].tolist()) - set(restored.texts.tolist())
    assert gone
    assert not any(text in gone for text in restored.texts.tolist())
    np.testing.assert_array_equal(fitted.columns(asked), before)
    nothing = one_by_one.without(np.flatnonzero(kept))
    assert not nothing.columns(asked).any()


def many(n_queries: int, seed: int) -> QuerySet:
    """Return queries of few words, many of them with the same text, and of documents that many share."""
    rng = np.random.default_rng(seed)
    words = ["toy", "story", "frozen", "heat", "alien", "cast", "trailer", "part"]
    return judged(
        [f"{' '.join(rng.choice(words, 3))} {rng.integers(9)}" for _ in range(n_queries)],
        [[f"d{n}" for n in rng.choice(60, 5, False)] for _ in range(n_queries)],
        [rng.integers(0, 4, 5).tolist() for _ in range(n_queries)],
        site=[f"s{n}" for n in rng.integers(0, 9, 5 * n_queries)],
    )


@pytest.mark.parametrize("meaning", [False, True])
@pytest.mark.parametrize("in_time", [False, True])
def test_columns_of_a_sample_are_the_same_from_several_blocks(meaning: bool, in_time: bool):
    queries = with_vectors(many(900, 3), 3)
    rng = np.random.default_rng(0)
    order = Round(rng.integers(0, 6, 900), rng.random(900) < 0.3, in_time)
    memory = QueryMemory.of(queries, ["site"], meaning=meaning)
    asked = memory.asked(queries[np.flatnonzero(order.asked)])
    at_once = memory.cross_fitted(order.part, queries, in_time=in_time, wanted=order.asked)
    bounds = [0, 280, 281, 620, 900]
    blocks = [memory.take(np.arange(start, stop)).answers(asked, order, start) for start, stop in pairwise(bounds)]
    stored = [Answers.from_state(block.get_state(), block.sums.targets, order.n_parts) for block in blocks]
    found = reduce(Answers.joined, stored).columns(asked, order)
    by_letters = len(column_names(["site"]))
    assert at_once[:, :by_letters].any(axis=0).all()
    np.testing.assert_array_equal(found[:, :by_letters], at_once[:, :by_letters])
    # Products of vectors are added up in another order in a matrix of another shape.
    np.testing.assert_allclose(found[:, by_letters:], at_once[:, by_letters:], atol=1e-6)


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


# --- kin by meaning ---------------------------------------------------------------------------------------------------


def with_vectors(queries: QuerySet, seed: int = 0) -> QuerySet:
    """Return queries with vectors in no relation to their letters; the first has none."""
    vectors = np.random.default_rng(seed).normal(size=(len(queries), 6)).astype(np.float32)
    vectors[0] = 0.0
    return queries.replace(query_columns={**queries.query_columns, "vector": vectors})


def test_columns_of_meaning_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    documents = [rng.choice(30, 8, replace=False).astype(str).tolist() for _ in range(90)]
    grades = rng.integers(0, 3, (90, 8)) / 2
    queries = with_vectors(judged([f"q{i}" for i in range(90)], documents, grades.tolist(), site=["x", "y"] * 360))
    known, asked = queries[:80], queries[80:]
    memory = QueryMemory.of(known, ["site"], best=1.0, meaning=True)
    found = memory.columns(asked)[:, [memory.names.index(name) for name in (*MEANING, CHOSEN_MEANING)]]
    unit = [
        part.query_columns["vector"]
        / np.maximum(np.linalg.norm(part.query_columns["vector"], axis=1, keepdims=True), 1e-9)
        for part in (known, asked)
    ]
    good, amount = np.zeros((80, 30)), np.zeros((80, 30))
    places = known.query_of_row, known.doc_id.astype(int)
    good[places], amount[places] = known.grades, 1
    mean = good.T @ unit[0]
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)
    for query, own in enumerate(asked):
        cosine = unit[0] @ unit[1][query]
        near = np.argsort(-cosine)[:50]
        w = np.maximum(cosine[near], 0)[:, None]
        document = own.doc_id.astype(int)
        of_kin, all_of_kin = good[near][:, document] * (w > 0), amount[near][:, document] * (w > 0)
        expected = [
            (w**2 * of_kin).sum(0),
            (w**2 * of_kin).sum(0) / ((w**2 * all_of_kin).sum(0) + 0.05),
            of_kin.sum(0),
            (w * of_kin).max(0),
            (w * (all_of_kin - of_kin)).max(0),
            mean[document] @ unit[1][query],
        ]
        np.testing.assert_allclose(found[8 * query : 8 * query + 8], np.array(expected).T, atol=1e-5)


def test_memory_by_meaning_is_kept_taken_and_joined(known: QuerySet):
    queries = with_vectors(known)
    memory = QueryMemory.of(queries, ["site"], meaning=True)
    assert memory.names[: len(column_names(["site"]))] == column_names(["site"])
    assert len(memory.names) == len(column_names(["site"])) + 6 + 5
    columns = memory.columns(queries)
    assert columns[:, len(column_names(["site"])) :].any()
    assert not columns[:2, len(column_names(["site"])) :].any()  # of a query about which nothing is known
    np.testing.assert_array_equal(QueryMemory.from_state(memory.get_state()).columns(queries), columns)
    joined = memory.take(np.arange(4) < 2).joined(memory.of_others(queries[2:]))
    np.testing.assert_allclose(joined.columns(queries), columns, atol=1e-6)
    fold = np.array([0, 1, 0, 1])
    found = memory.cross_fitted(fold, queries)
    for number in (0, 1):
        others, rows = memory.take(fold != number), np.repeat(fold == number, known.sizes)
        np.testing.assert_allclose(found[rows], others.columns(queries[fold == number]), atol=1e-6)


def test_vectors_of_another_width_are_refused(known: QuerySet):
    memory = QueryMemory.of(with_vectors(known), meaning=True)
    other = known.replace(query_columns={**known.query_columns, "vector": np.ones((4, 3), dtype=np.float32)})
    with pytest.raises(DataError, match="vectors of 6 numbers, and these have 3"):
        memory.columns(other)
    with pytest.raises(DataError, match="pass query_vectors"):
        memory.columns(known)
