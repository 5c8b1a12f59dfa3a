"""Memory in `KinRanker`: kept where it pays, and the same through every door."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import kinrank
from kinrank import KinRanker, QuerySet
from kinrank.errors import DataError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG
from kinrank.memory.columns import QueryMemory, column_names
from kinrank.rankers.kin._parts import PartRecord, choose_memory, columns_of_training, periods_of

TOPICS = [f"{kind} {thing}" for kind in ("red", "old", "tiny", "loud") for thing in ("lamp", "chair", "radio", "clock")]
EXTRA = ["", "cheap", "buy", "best", "my", "used", "shop", "photo", "review", "price"]
FEW = LambdaMART(30, n_leaves=7, min_rows_in_leaf=5)


def shop(n_queries: int = 160, seed: int = 0, *, remembers: bool = True) -> QuerySet:
    """Return queries for things: each is right for one document of its topic, which the features do not tell.

    If not `remembers`, which document is right is drawn anew for each query.
    """
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, len(TOPICS), n_queries)
    texts = [f"{rng.choice(EXTRA)} {TOPICS[own]} {rng.choice(EXTRA)}".strip() for own in topic]
    documents = np.array([rng.permutation(len(TOPICS))[:8] for _ in topic])
    right = topic if remembers else rng.integers(0, len(TOPICS), n_queries)
    documents[:, 0] = right
    documents = np.array(
        [[own, *[other for other in row[1:] if other != own][:6]] for own, row in zip(right, documents, strict=True)]
    )
    documents = rng.permuted(documents, axis=1)
    grades = documents == right[:, None]
    return QuerySet.from_arrays(
        rng.normal(size=(grades.size, 2)) + 0.3 * grades.reshape(-1, 1),
        grades.ravel().astype(float),
        qid=np.repeat(np.arange(n_queries), 7),
        doc_id=[f"d{number}" for number in documents.ravel()],
        query_columns={"text": texts, "day": np.arange(n_queries) // 20},
        doc_columns={"brand": [f"b{number // 4}" for number in documents.ravel()]},
    )


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    return shop()


@pytest.fixture(scope="module")
def ranker(queries: QuerySet) -> KinRanker:
    return KinRanker(keys=["brand"], trees=FEW, settings={"n_repeats": 1}).fit(queries[:120])


def test_memory_is_kept_where_it_pays(queries: QuerySet, ranker: KinRanker):
    assert ranker.memory_ is not None
    kept = {record.part: record.kept for record in ranker.parts_}
    assert kept["kin"]
    assert any(remark.startswith("kin: kept, +") and "ms" in remark for remark in ranker.remarks())
    alone = KinRanker(memory=False, trees=FEW, settings={"n_repeats": 1}).fit(queries[:120])
    assert alone.memory_ is None
    assert ranker.score(queries[120:]) > alone.score(queries[120:]) + 0.1


def test_memory_is_left_out_where_nothing_recurs():
    memory, records = choose_memory(shop(remembers=False), (), None, None, 0)
    assert memory is None
    assert [record.kept for record in records] == [False, False]
    assert str(records[1]).startswith("kin: left out, ")


def test_without_texts_or_ids_there_is_no_memory(queries: QuerySet):
    for poor in (queries.replace(doc_id=None), queries.replace(query_columns={})):
        assert choose_memory(poor, (), None, None, 0) == (None, [])


def test_a_missing_key_is_named(queries: QuerySet, ranker: KinRanker):
    with pytest.raises(DataError, match="no column 'color'"):
        KinRanker(keys=["color"]).fit(queries)
    with pytest.raises(DataError, match="no column 'brand'"):
        ranker.predict(queries[:1].replace(doc_columns={}))


def test_saved_and_loaded_scores_are_the_same(queries: QuerySet, ranker: KinRanker, tmp_path: Path):
    ranker.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(queries[120:]), ranker.predict(queries[120:]))
    assert str(loaded.explain(queries[130])[0]) == str(ranker.explain(queries[130])[0])


def test_scores_do_not_depend_on_how_they_are_asked_for(queries: QuerySet, ranker: KinRanker):
    new = queries[120:]
    scores = ranker.predict(new)
    np.testing.assert_allclose(np.concatenate([ranker.predict(one) for one in new]), scores, atol=1e-9)
    np.testing.assert_array_equal(ranker.predict_with_novelty(new).scores, scores)
    shuffled = np.random.default_rng(0).permutation(new.n_rows)
    arrays = {"qid": np.repeat(new.qid, new.sizes)[shuffled], "doc_id": new.doc_id[shuffled]}
    texts = dict(zip(new.qid.tolist(), new.query_columns["text"].tolist(), strict=True))
    keys = {"brand": new.doc_columns["brand"][shuffled]}
    found = ranker.predict(new.X[shuffled], **arrays, query_text=texts, keys=keys)
    np.testing.assert_allclose(found, scores[shuffled], atol=1e-9)


def test_arrays_and_query_sets_fit_alike(queries: QuerySet):
    train = queries[:60]
    texts = dict(zip(train.qid.tolist(), train.query_columns["text"].tolist(), strict=True))
    settings = KinRanker(trees=FEW, settings={"n_repeats": 1})
    by_arrays = clone(settings).fit(
        train.X, train.y, qid=np.repeat(train.qid, train.sizes), doc_id=train.doc_id, query_text=texts
    )
    by_set = clone(settings).fit(train)
    np.testing.assert_array_equal(by_arrays.predict(queries[60:]), by_set.predict(queries[60:]))


def test_judgments_change_memory_at_once(queries: QuerySet, ranker: KinRanker):
    adapted = ranker.copy()
    text = "golden piano"
    new = queries[0].replace(
        qid=np.array([900]), query_columns={"text": np.array([text]), "day": np.array([9])}, y=np.eye(7)[3]
    )
    asked = new.replace(
        qid=np.array([901]), y=None, query_columns={**new.query_columns, "text": np.array([f"{text} 2"])}
    )
    before = adapted.predict(asked)
    adapted.add(new)
    after = adapted.predict(asked)
    place = adapted.memory_.names.index("kin_nearest_good")
    columns = adapted.memory_.columns(asked)
    assert columns[3, place] > 0.5
    assert (after[3] - np.delete(after, 3).mean()) > (before[3] - np.delete(before, 3).mean())
    assert "judged right for *golden piano*" in adapted.explain(asked)[0].judged(3)
    assert (
        ranker.memory_.memory.texts.tolist() == queries.query_columns["text"][:120].tolist()
    )  # the copy learned alone
    adapted.remove([900])
    np.testing.assert_array_equal(adapted.predict(asked), before)


def test_reasons_name_queries_and_keys(queries: QuerySet, ranker: KinRanker):
    explained = ranker.explain(queries[125])[0]
    best = int(np.argmin(explained.rank))
    assert "judged right for *" in explained.judged(best)
    assert "what was chosen for it and for queries like it" in str(explained)
    assert explained.contributions.shape == (7, len(explained.parts))
    np.testing.assert_allclose(explained.scores, ranker.predict(queries[125]), atol=1e-6)


def test_in_time_only_earlier_queries_are_remembered(queries: QuerySet):
    in_time = KinRanker(time_column="day", trees=FEW, settings={"n_repeats": 1}).fit(queries)
    assert in_time.memory_ is not None
    columns = in_time.memory_.of_training(queries, None, "day", 0)
    assert not columns[: queries.offsets[20]].any()  # of the first day
    assert columns[queries.offsets[-20] :].any()


@pytest.mark.parametrize("first_at_once", [0, 118, 119])
def test_times_of_every_kind_decide_about_memory(queries: QuerySet, first_at_once: int):
    """One time for each query, all but one at once, and all at once."""
    time = np.maximum(np.arange(120), first_at_once)
    asked = queries[:120].replace(query_columns={**queries[:120].query_columns, "asked": time})
    ranker = KinRanker(time_column="asked", trees=FEW, settings={"n_repeats": 1}).fit(asked)
    assert (ranker.memory_ is not None) == (first_at_once == 0)
    parts = np.unique(periods_of(asked.query_columns["asked"]), return_counts=True)[1]
    assert len(parts) == {0: 20, 118: 2, 119: 1}[first_at_once]
    assert np.all(np.diff(periods_of(asked.query_columns["asked"])) >= 0)


def test_settings_are_scikit_learns(ranker: KinRanker, queries: QuerySet):
    assert clone(ranker).get_params()["keys"] == ["brand"]
    assert KinRanker().set_params(keys=("site",)).keys == ("site",)
    restored = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(restored.predict(queries[120:]), ranker.predict(queries[120:]))


def test_record_in_words():
    kept = PartRecord("kin", True, 0.02, 0.081, 0.029, 0.21)
    assert str(kept) == "kin: kept, +.029 on far queries and +.081 on near queries, .21 ms"
    assert (
        str(PartRecord("weights per query", False, -0.0011)) == "weights per query: left out, -.001 on held-out queries"
    )
    assert len(column_names(["brand"])) == 22


def new_things(queries: QuerySet) -> np.ndarray:
    """Return which queries of `shop` are about the last four topics."""
    return np.array([any(text.find(topic) >= 0 for topic in TOPICS[12:]) for text in queries.query_columns["text"]])


def quality_on_new_things(monkeypatch: pytest.MonkeyPatch, share: float) -> float:
    """Return NDCG@10 on things that no judged query is about, of trees that learned a share of the queries as new."""
    monkeypatch.setattr("kinrank.rankers.kin._parts._NEW", share)
    everything = shop(400, seed=3)
    new = new_things(everything)
    memory = QueryMemory.of(everything[~new])
    seen = columns_of_training(memory, everything[~new], None, None, 0)
    known, asked = everything[~new], everything[new]
    trees = FEW.fit(known.replace(X=np.hstack([known.X, seen]), feature_names=()))
    scores = trees.predict(np.hstack([asked.X, memory.columns(asked)]))
    return (NDCG @ 10).mean(scores, asked.grades, asked.offsets)


def test_what_was_right_before_does_not_outrank_new_things(monkeypatch: pytest.MonkeyPatch):
    everything = shop(400, seed=3)
    new = new_things(everything)
    known, asked = everything[~new], everything[new]
    alone = (NDCG @ 10).mean(FEW.fit(known).predict(asked.X), asked.grades, asked.offsets)
    assert quality_on_new_things(monkeypatch, 0.0) < alone - 0.05
    assert quality_on_new_things(monkeypatch, 0.1) > alone - 0.05


def test_columns_of_training_know_queries_that_all_share_a_document(queries: QuerySet):
    grades = np.where(np.arange(queries.n_rows) % 7 == 0, 1.0, queries.grades).astype(np.float32)
    same = queries.replace(y=grades, doc_id=np.where(np.arange(queries.n_rows) % 7 == 0, "one", queries.doc_id))
    memory = QueryMemory.of(same)
    columns = columns_of_training(memory, same, None, None, 0)
    wanted = np.arange(len(same)) % 2 == 0
    assert columns.any(axis=1).mean() > 0.8
    assert_array_equal(columns_of_training(memory, same, None, None, 0, wanted), columns[np.repeat(wanted, same.sizes)])


def test_features_that_trees_hardly_use_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    X[:, 2] = 1.0
    queries = QuerySet.from_arrays(
        X, X[:, 0] > 0.5, qid=np.repeat(np.arange(40), 10), feature_names=["title", "other", "constant"]
    )
    ranker = KinRanker(
        memory=False, local=False, trees="lambdamart(n_trees=5)", settings={"n_members": 2, "n_repeats": 1}
    )
    [remark] = [each for each in ranker.fit(queries).remarks() if "--columns drop=" in each]
    assert "constant" in remark
    assert "title" not in remark
