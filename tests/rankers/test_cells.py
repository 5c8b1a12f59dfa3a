from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinrank
from kinrank import CellRanker, KnnRanker, QuerySet, SingleRanker, choose_neighbors
from kinrank.checks import linear_queries
from kinrank.data.blocks import QuerySetBlocks
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import DataError, ParameterError
from kinrank.kin import Describer
from kinrank.learn.rankrls import RankRLS
from kinrank.parallel import Serial
from kinrank.rankers.cells import _training as cell_training
from kinrank.rankers.cells._training import FAN_IN, BlockSummer, CellStatistics, covering_shares, merge_all

SETTINGS = [
    {},
    {"neighbor_weights": "gaussian"},
    {"prior": "global", "prior_strength": 0.5},
    {"learner": RankRLS(balance="queries")},
    {"describe": Describer(["mean", "max"], n_components=3)},
    {"scale": "none"},
]


def train_and_test() -> tuple[QuerySet, QuerySet]:
    return linear_queries(50), linear_queries(20, seed=1)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_one_cell_per_query_equals_exact_knn(settings: dict[str, object]) -> None:
    train, test = train_and_test()
    exact, cells = KnnRanker(9, **settings).fit(train), CellRanker(9, n_cells=len(train), **settings).fit(train)
    np.testing.assert_allclose(cells.weights(test), exact.weights(test), atol=1e-6)
    np.testing.assert_allclose(cells.predict(test), exact.predict(test), atol=1e-5)


@pytest.mark.parametrize("n_cells", [1, 2, 7, 50])
@pytest.mark.parametrize("settings", SETTINGS[2:4], ids=str)
def test_all_neighbors_equal_single_for_any_number_of_cells(n_cells: int, settings: dict[str, object]) -> None:
    train, test = train_and_test()
    single = SingleRanker(settings.get("learner", "rankrls")).fit(train)
    cells = CellRanker(10**6, n_cells=n_cells, neighbor_weights="uniform", **settings).fit(train)
    np.testing.assert_allclose(cells.weights(test), single.weights(test), atol=1e-6)


def test_cells_rank_two_camps_perfectly() -> None:
    camps = make_two_camps(n_queries=60, seed=0)
    assert CellRanker(12, n_cells=4).fit(camps[:40]).score(camps[40:]) == pytest.approx(1.0)


def test_last_cell_counts_in_part() -> None:
    # The expected weights come from the nearest cells, and from the part of the last that is needed for k.
    train, test = train_and_test()
    ranker = CellRanker(13, n_cells=6, neighbor_weights="uniform", prior="none").fit(train)
    prepared = ranker.preparer_.apply(train)
    own, _ = ranker.model_.tree.assign(ranker.points(train))
    each = kinrank.learn.statistics.PairStatistics.from_queries(prepared)
    for query in test:
        distances = np.linalg.norm(ranker.model_.tree.centers_.astype(np.float64) - ranker.points(query)[0], axis=1)
        left, weights = 13.0, np.zeros(len(train))
        for cell in np.argsort(distances):
            members = np.flatnonzero(own == cell)
            share = min(1.0, left / len(members))
            weights[members] = share
            left -= share * len(members)
            if left <= 0:
                break
        expected = each.sum(weights=weights).solve(ranker.learner_.penalty)[0]
        np.testing.assert_allclose(ranker.weights(query)[0], ranker.preparer_.raw_weights(expected), atol=1e-6)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 40))
def test_shares_cover_the_wanted_number_nearest_first(counts: list[int], wanted: int) -> None:
    held = np.array(counts, dtype=float)
    shares = covering_shares(held, np.array([wanted]))[0]
    assert (shares * held).sum() == pytest.approx(min(wanted, held.sum()))
    some = shares[held > 0]
    assert np.all(np.diff(some) <= 0)
    assert np.count_nonzero((some > 0) & (some < 1)) <= 1


def test_radius_takes_whole_cells() -> None:
    train, test = train_and_test()
    np.testing.assert_allclose(
        CellRanker(radius=1e6, n_cells=5).fit(train).weights(test),
        SingleRanker("rankrls").fit(train).weights(test),
        atol=1e-6,
    )
    far = CellRanker(radius=1e-9, n_cells=5).fit(train)
    np.testing.assert_allclose(far.weights(test), SingleRanker("rankrls").fit(train).weights(test), atol=1e-6)


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
def test_merge_equals_fit_on_union_and_forget_equals_fit_on_rest(settings: dict[str, object]) -> None:
    queries, test = linear_queries(60), linear_queries(10, seed=1)
    first = CellRanker(15, n_cells=8, **settings).fit(queries[:30])
    second = first.fit_alike(queries[30:])
    union = first.fit_alike(queries)
    alone, other = first.weights(test), second.weights(test)
    first.merge(second)
    np.testing.assert_allclose(first.weights(test), union.weights(test), atol=1e-6)
    assert first.model_.training_set.counts.tolist() == union.model_.training_set.counts.tolist()
    np.testing.assert_array_equal(second.weights(test), other)
    first.forget(queries[30:])
    np.testing.assert_allclose(first.weights(test), alone, atol=1e-6)
    rest = first.fit_alike(queries[5:30])
    first.forget(queries[:5])
    np.testing.assert_allclose(first.weights(test), rest.weights(test), atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 39))
def test_add_then_forget_restores_the_ranker(seed: int, n: int) -> None:
    queries, test = linear_queries(40, seed=seed), linear_queries(5, seed=seed + 1)
    ranker = CellRanker(7, n_cells=5).fit(queries)
    before = ranker.weights(test)
    new = linear_queries(n, seed=seed + 2)
    new = new.replace(qid=np.array([f"new {qid}" for qid in new.qid]))
    ranker.add(new).forget(new)
    np.testing.assert_allclose(ranker.weights(test), before, atol=1e-6)
    assert ranker.model_.training_set.counts.sum() == len(queries)
    assert not any("new" in name for name in ranker.qid_)


def test_loaded_model_can_change_without_changing_its_folder(tmp_path: Path) -> None:
    queries, test = linear_queries(60), linear_queries(10, seed=1)
    ranker = CellRanker(15, n_cells=8).fit(queries[:30])
    ranker.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    assert isinstance(loaded, CellRanker)
    loaded.add(queries[30:]).merge(ranker.fit_alike(queries[:3]))
    np.testing.assert_array_equal(kinrank.load(tmp_path / "model").weights(test), ranker.weights(test))
    assert loaded.model_.training_set.counts.sum() == 63


def test_explanations_name_a_query_of_each_cell() -> None:
    train, test = train_and_test()
    ranker = CellRanker(20, n_cells=6).fit(train)
    first, *_ = ranker.explain(test)
    assert set(first.neighbors) <= set(train.qid)
    assert first.counts.sum() == pytest.approx(20)
    assert np.all(np.diff(first.distances) >= 0)
    assert f"learned from 20 judged queries in {len(first.neighbors)} cells" in str(first)
    named = train[np.isin(train.qid, first.neighbors[:1])]
    cell, _ = ranker.model_.tree.assign(ranker.points(named))
    assert ranker.qid_[cell[0]] == first.neighbors[0]
    ranker.forget(named)
    assert ranker.qid_[cell[0]] == f"cell {cell[0]}"
    assert ranker.explain(test.replace(X=test.X + 1000.0))[0].unusual == 1.0


def test_choosing_k_in_one_pass_equals_trying_each_k() -> None:
    train, test = train_and_test()
    ranker = CellRanker(5, n_cells=6).fit(train)
    choice = choose_neighbors(ranker, test, [3, 10, 33, 999], prior_strengths=[None, 0.5])
    assert {k for k, _ in choice.quality} == {3, 10, 33, 50}
    for (k, strength), quality in choice.quality.items():
        prior = {"prior": "none"} if strength is None else {"prior": "global", "prior_strength": strength}
        assert quality == pytest.approx(ranker.set_params(n_neighbors=k, **prior).score(test), abs=1e-9)


def test_sums_do_not_depend_on_the_split_of_a_block() -> None:
    train, _ = train_and_test()
    plan = CellRanker(n_cells=6).fit(train).model_.plan
    whole = plan.sums([train]).get_state()
    parts = plan.sums([train[:1], train[1:20], train[20:]]).get_state()
    for name, array in whole.items():
        np.testing.assert_array_equal(parts[name], array)


@pytest.mark.parametrize("n_parts", [1, 2, FAN_IN, FAN_IN + 1, 3 * FAN_IN, FAN_IN**2 + FAN_IN + 1])
def test_parts_are_merged_level_by_level(n_parts: int) -> None:
    rng = np.random.default_rng(0)
    learner = RankRLS()

    def part() -> CellStatistics:
        cells = CellStatistics.empty(learner, 2, 1)
        cells.statistics.gram[:] = rng.standard_normal((2, 1))
        return cells

    parts = [part() for _ in range(n_parts)]
    level = [each.copy() for each in parts]
    while len(level) > 1:
        groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
        for first, *others in groups:
            for other in others:
                first.merge(other)
        level = [group[0] for group in groups]
    np.testing.assert_array_equal(merge_all(parts).statistics.gram, level[0].statistics.gram)


def test_cells_are_planned_on_a_sample_of_larger_data(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scales come from some queries, centers from more, sums from all.
    monkeypatch.setattr(cell_training, "SAMPLE_ROWS", 500)
    queries = make_intents(600, 100, n_features=8, n_docs=15, spread=1.0)
    train, test = queries[:600], queries[600:]
    blocks = QuerySetBlocks(train, 700)
    ranker = CellRanker(100, n_cells=10)
    plan = ranker.plan_cells(blocks, Serial())
    ranker.n_features_in_, ranker.feature_names_ = train.n_features, train.feature_names
    ranker.set_cells(plan, merge_all(map(BlockSummer(plan, blocks), range(len(blocks)))))
    assert len(ranker.model_.tree) == 10
    assert ranker.model_.training_set.counts.sum() == 600
    assert ranker.score(test) > SingleRanker("rankrls").fit(train).score(test) + 0.03


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cells": 0}, "n_cells must be a whole number from 1, got 0"),
        (
            {"n_cells": 4, "learner": "ranksvm"},
            "CellRanker needs RankRLS, .* got learner='ranksvm'",
        ),
    ],
)
def test_invalid_settings_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        CellRanker(**settings).fit(linear_queries())


def test_invalid_changes_raise_and_change_nothing() -> None:
    train, _ = train_and_test()
    cells = CellRanker(5, n_cells=4).fit(train)
    with pytest.raises(ParameterError, match="the same scaling, description and cells"):
        cells.merge(CellRanker(5, n_cells=4).fit(train[:30]))
    with pytest.raises(DataError, match=r"cannot forget query .*: its cell holds fewer queries"):
        cells.fit_alike(train[1:]).forget(train)
    with pytest.raises(DataError, match="cannot forget all judged queries"):
        cells.forget(train)
    with pytest.raises(DataError, match="all grades are equal"):
        CellRanker(n_cells=3).set_cells(cells.model_.plan, CellStatistics.empty(RankRLS(), 4, 5))
    assert cells.model_.training_set.counts.sum() == len(train)
