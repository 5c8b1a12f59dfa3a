from __future__ import annotations

import sys

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.data.split import split_queries
from kinrank.datasets import make_intents
from kinrank.errors import DataError, MissingExtraError, ParameterError
from kinrank.measure import NDCG
from kinrank.study import peers
from kinrank.study._entrants import make_ranker
from kinrank.study.experiment import run_experiment
from kinrank.study.peers import PEERS, LightGBMPeer


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    return make_intents(160, 40, n_docs=20, n_features=8, noise=0.3, spread=0.0)


def ndcg(scores: np.ndarray, queries: QuerySet) -> float:
    return (NDCG @ 10).mean(scores, queries.grades, queries.offsets)


def test_peer_learns_stops_early_and_is_deterministic(queries: QuerySet):
    train, test = queries[:160], queries[160:]
    peer = LightGBMPeer(400, learning_rate=0.1, patience=10).fit(train)
    assert 1 <= peer.n_trees_ < 400
    scores = peer.predict(test)
    assert ndcg(scores, test) > ndcg(test.X[:, 0], test) + 0.1
    assert np.array_equal(clone(peer).fit(train).predict(test), scores)


def test_a_validation_part_is_used_to_choose_and_then_trained_on(queries: QuerySet):
    train, validation = split_queries(queries, (0.85, 0.15), seed=3)
    settings = {"n_trees": 60, "patience": 5, "seed": 3}
    given = LightGBMPeer(**settings).fit(train, validation=validation)
    refitted = LightGBMPeer(**settings).fit(queries)
    assert refitted.n_trees_ == given.n_trees_
    assert not np.array_equal(refitted.predict(queries), given.predict(queries))
    assert np.array_equal(refitted.predict(queries), given.grow(queries).predict(queries))


def test_rows_of_weight_0_are_as_if_they_were_not_there(queries: QuerySet):
    known = np.arange(queries.n_rows) % 3 > 0
    noise = np.where(known, queries.grades, 3 - queries.grades)
    unknown = queries.replace(y=noise, sample_weight=known.astype(np.float32))
    settings = {"n_trees": 20, "patience": 5}
    peer = LightGBMPeer(**settings).fit(unknown)
    assert np.array_equal(peer.predict(queries), LightGBMPeer(**settings).fit(unknown.only_weighted()).predict(queries))


def test_weights_of_queries_count_and_equal_weights_do_not(queries: QuerySet):
    peer = LightGBMPeer(10, validation=0, shapes=None)
    plain = clone(peer).fit(queries).predict(queries)
    weight = np.ones(queries.n_rows, dtype=np.float32)
    assert np.array_equal(clone(peer).fit(queries.replace(sample_weight=weight)).predict(queries), plain)
    weight[: queries.n_rows // 2] = 0.1
    assert not np.array_equal(clone(peer).fit(queries.replace(sample_weight=weight)).predict(queries), plain)


def test_params_override_and_no_validation_grows_all_trees(queries: QuerySet):
    fast = LightGBMPeer(5, learning_rate=0.01, validation=0, params={"learning_rate": 0.3}).fit(queries)
    same = LightGBMPeer(5, learning_rate=0.3, validation=0).fit(queries)
    assert fast.n_trees_ == 5
    assert np.array_equal(fast.predict(queries), same.predict(queries))


def test_best_shape_on_the_validation_part_is_used(queries: QuerySet):
    train, validation = queries[:120], queries[120:]
    settings = {"n_trees": 40, "patience": 10}
    tuned = LightGBMPeer(**settings).fit(train, validation=validation)
    alone = {
        shape: LightGBMPeer(**settings, shapes=(shape,)).fit(train, validation=validation) for shape in peers.SHAPES
    }
    quality = {
        shape: peers.MEASURE.mean(peer.predict(validation), validation.grades, validation.offsets)
        for shape, peer in alone.items()
    }
    assert tuned.shape_ == max(quality, key=quality.__getitem__)
    assert np.array_equal(tuned.predict(queries), alone[tuned.shape_].predict(queries))


def test_bag_is_the_mean_of_members_of_the_tuned_shape(queries: QuerySet):
    bag = PEERS["lightgbm-bag"](3, peer=LightGBMPeer(30, patience=10)).fit(queries[:160])
    assert bag.members_[0].model_.params["bagging_by_query"]
    again = PEERS["lightgbm-bag"](3, peer=bag.peer_)
    assert again.choose(*bag.peer_.parts(queries[:160])).peer_ is bag.peer_  # a tuned model is not tuned again
    assert again.n_trees_ == bag.n_trees_
    assert bag.n_trees_ in (bag.peer_.n_trees_, 2 * bag.peer_.n_trees_)
    assert {member.shape_ for member in bag.members_} == {bag.peer_.shape_}
    scores = [member.predict(queries) for member in bag.members_]
    assert not np.array_equal(scores[0], scores[1])
    np.testing.assert_allclose(bag.predict(queries), np.mean(scores, axis=0))
    assert ndcg(bag.predict(queries[160:]), queries[160:]) > ndcg(queries[160:].X[:, 0], queries[160:]) + 0.1


def test_validation_part_respects_groups(queries: QuerySet, monkeypatch: pytest.MonkeyPatch):
    pairs = np.arange(len(queries)) // 2
    grouped = queries.replace(query_columns={"pair": pairs})
    seen = []
    monkeypatch.setattr(peers.LightGBMPeer, "_grow", lambda self, part, held_out, n: seen.append((part, held_out)) or n)
    monkeypatch.setattr(peers.LightGBMPeer, "predict", lambda self, queries: np.zeros(queries.n_rows))
    peer = LightGBMPeer(group_column="pair")
    peer.model_ = None
    peer.fit(grouped)
    part, held_out = seen[0]
    assert not set(part.query_columns["pair"]) & set(held_out.query_columns["pair"])


def test_experiment_sets_the_group_column(queries: QuerySet):
    grouped = queries.replace(query_columns={"pair": np.arange(len(queries)) // 2})
    found = run_experiment(["single", "lightgbm(n_trees=5)"], grouped, folds=2, group="pair").comparison
    assert [entrant.origin for entrant in found.entrants] == ["ranker", "peer"]
    assert found["lightgbm(n_trees=5)"].settings["group_column"] == "pair"
    assert make_ranker("kin", group="pair").get_params()["group_column"] == "pair"


def test_wrong_input_raises(queries: QuerySet, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ParameterError, match="validation must be a share"):
        LightGBMPeer(validation=1.0).fit(queries)
    with pytest.raises(DataError, match=r"needs whole grades from 0 to 30, got 0\.5"):
        LightGBMPeer().fit(queries.replace(y=np.full(queries.n_rows, 0.5, np.float32)))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        LightGBMPeer().fit(queries)
