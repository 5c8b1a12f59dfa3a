"""KinRanker's local part learns and forgets without a new fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, QuerySet
from kinrank.datasets import make_intents
from kinrank.errors import DataError
from kinrank.learn.lambdamart import LambdaMART

FEW = LambdaMART(n_trees=20, n_leaves=7, min_rows_in_leaf=5, n_threads=1)


@pytest.fixture(scope="module")
def fitted() -> tuple[QuerySet, QuerySet, KinRanker]:
    queries = make_intents(100, 20, n_docs=15, n_features=5, spread=1.0, seed=0)
    return queries[100:110], queries[110:], KinRanker(20, trees=FEW).fit(queries[:100])


def test_local_part_equals_a_local_ranker_with_the_same_queries(fitted):
    more, test, ranker = fitted
    changed = ranker.copy().add(more)
    np.testing.assert_array_equal(changed.local_.predict(test), ranker.local_.copy().add(more).predict(test))
    assert changed.members_ is ranker.members_
    assert changed.shares_ == ranker.shares_
    assert not np.array_equal(changed.predict(test), ranker.predict(test))


def test_unseen_queries_are_counted_saved_and_seen_by_the_next_fit(fitted, tmp_path: Path):
    more, test, ranker = fitted
    changed = ranker.copy().add(more[:7]).remove(more.qid[:2])
    assert (ranker.n_unseen_, changed.n_unseen_) == (0, 5)
    changed.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    assert loaded.n_unseen_ == 5
    # Statistics of added queries are summed apart from the others until they are saved with them, so rounding differs.
    np.testing.assert_allclose(loaded.predict(test), changed.predict(test), rtol=1e-9, atol=1e-12)
    assert loaded.fit(more).n_unseen_ == 0


def test_removing_a_fitted_query_changes_no_count(fitted):
    *_, ranker = fitted
    changed = ranker.copy().remove(ranker.qid_[:3])
    assert (len(changed.qid_), changed.n_unseen_) == (97, 0)


def test_learned_from_includes_added_queries_and_those_the_trees_remember(fitted):
    more, _, ranker = fitted
    assert not ranker.learned_from(more).any()
    assert ranker.copy().add(more).learned_from(more).all()
    gone = ranker.local_.qid_[:1]
    known = QuerySet(more.X[:15], None, np.array([0, 15]), gone, feature_names=more.feature_names)
    assert ranker.copy().remove(gone).learned_from(known).all()


def test_adding_a_known_query_raises_and_changes_nothing(fitted):
    more, test, ranker = fitted
    changed = ranker.copy().add(more)
    before = changed.predict(test)
    with pytest.raises(DataError, match="is known already"):
        changed.add(more)
    assert changed.n_unseen_ == len(more)
    np.testing.assert_array_equal(changed.predict(test), before)


def test_texts_of_added_queries_are_encoded():
    queries = make_intents(60, 10, n_docs=10, n_features=5, seed=0)
    texts = {qid: f"query {qid % 7} about {qid % 5}" for qid in queries.qid.tolist()}
    ranker = KinRanker(10, trees=FEW).fit(queries[:60], query_text=texts)
    ranker.add(queries[60:65], query_text=texts)
    assert ranker.n_unseen_ == 5
    with pytest.raises(DataError, match="pass query_text="):
        ranker.add(queries[65:])


def test_added_queries_of_cells_are_known_and_counted_once(fitted):
    more, test, ranker = fitted
    queries = make_intents(100, 20, n_docs=15, n_features=5, spread=1.0, seed=0)
    cells = KinRanker(20, trees=FEW, settings={"n_cells": 10}).fit(queries[:100])
    cells.add(more).add(more)
    assert cells.n_unseen_ == len(more)
    assert cells.learned_from(more).all()
    assert not cells.learned_from(test).any()
    assert cells.forget(more).forget(more).n_unseen_ == 0
    assert ranker.predict(test[:0]).shape == (0,)
