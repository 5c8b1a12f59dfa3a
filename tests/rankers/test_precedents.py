"""`PrecedentRanker`: judgments of the same documents for similar queries, as features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kinrank import ChoiceRanker, PrecedentRanker, QuerySet, SingleRanker, load
from kinrank.data.texts import TEXT
from kinrank.errors import DataError, ParameterError, StoreError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG
from kinrank.rankers.base import from_record
from kinrank.rankers.precedents.columns import NAMES, Precedents
from kinrank.store import read_model

TOPICS = ("aardvark", "bicycle", "cucumber", "dolphin", "eggplant", "fountain", "giraffe", "harmonica")
FEW = SingleRanker(LambdaMART(n_trees=30, min_rows_in_leaf=5))


def shop(n_queries: int = 160, *, topical: bool = True, seed: int = 0) -> QuerySet:
    """Return queries whose features say little. Which documents are relevant depends on their topic, or on nothing."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, len(TOPICS), n_queries)
    documents = np.stack([rng.permutation(40)[:12] for _ in range(n_queries)])
    relevant = documents % len(TOPICS) == topic[:, None] if topical else rng.random(documents.shape) < 0.15
    texts = [f"{TOPICS[each]} number {i}" for i, each in enumerate(topic.tolist())]
    return QuerySet.from_arrays(
        rng.standard_normal((documents.size, 2)) + 0.3 * relevant.reshape(-1, 1),
        relevant.ravel().astype(int),
        qid=np.repeat(np.arange(n_queries), 12),
        doc_id=np.char.add("d", documents.ravel().astype(str)),
        query_columns={TEXT: texts, "topic": topic},
    )


def ndcg(ranker: PrecedentRanker | SingleRanker, queries: QuerySet) -> float:
    return float((NDCG @ 10).mean(ranker.predict(queries), queries.grades, queries.offsets))


def test_columns_are_those_of_other_queries() -> None:
    queries = shop(60)
    precedents = Precedents().fit(queries)
    found = dict(zip(NAMES, precedents.columns(queries).T, strict=True))
    distances, places = precedents.known_.neighbors(queries)
    assert queries.doc_id is not None
    for row in range(0, queries.n_rows, 7):
        own = queries.query_of_row[row]
        others = np.flatnonzero((queries.doc_id == queries.doc_id[row]) & (queries.query_of_row != own))
        similarity = dict(zip(places[own].tolist(), (1 / (1 + distances[own] ** 2)).tolist(), strict=True))
        near = [(similarity.get(int(queries.query_of_row[other]), 0.0), queries.grades[other]) for other in others]
        near = [(weight, grade) for weight, grade in near if weight > 0]
        assert found["precedents"][row] == len(near)
        mean = (sum(grade for _, grade in near) + precedents.rate_) / (len(near) + 1)
        assert found["precedent_grade"][row] == pytest.approx(mean)
        assert found["nearby_precedents"][row] == pytest.approx(sum(weight for weight, _ in near))
        assert found["nearest_good_precedent"][row] == pytest.approx(max([w for w, g in near if g > 0], default=0.0))
        assert found["nearest_bad_precedent"][row] == pytest.approx(max([w for w, g in near if g == 0], default=0.0))


def test_own_judgments_do_not_count() -> None:
    queries = shop(60)
    columns = Precedents().fit(queries).columns(queries)
    row = np.flatnonzero(queries.query_of_row == 5)
    changed = queries.grades.copy()
    changed[row] = 1 - changed[row]
    again = Precedents().fit(queries.replace(y=changed.astype(np.float32)))
    again.rate_ = float(queries.grades.mean())
    np.testing.assert_allclose(again.columns(queries)[row], columns[row])


def test_a_group_lends_nothing_to_itself() -> None:
    queries = shop(60)
    found = Precedents().fit(queries, queries.query_columns["topic"]).columns(queries)
    good = found[queries.grades > 0, NAMES.index("nearest_good_precedent")]
    assert not good.any()  # a document is relevant to one topic alone
    assert found[queries.grades > 0, NAMES.index("nearest_bad_precedent")].all()


def test_a_text_of_two_groups_gets_nothing_from_either() -> None:
    queries = shop(60)
    topic, texts = queries.query_columns["topic"], queries.query_columns[TEXT].copy()
    first, second = 0, int(np.flatnonzero(topic != topic[0])[0])
    texts[second] = texts[first]
    queries = queries.replace(query_columns={TEXT: texts, "topic": topic})
    for query in (first, second):
        similarity, places = Precedents().fit(queries, topic)._neighbors(queries[query])
        lending = topic[places[similarity > 0]]
        assert len(lending)
        assert not np.isin(lending, topic[[first, second]]).any()


def test_gains_where_documents_are_shared() -> None:
    train, test = shop(), shop(seed=1)
    ranker = PrecedentRanker(FEW).fit(train)
    assert ranker.gain_ is not None
    assert ranker.gain_ > 0.1
    assert ndcg(ranker, test) > ndcg(FEW.fit(train), test) + 0.1
    assert "raised NDCG@10" in ranker.remarks()[-1]


@pytest.mark.parametrize("part", ["ids", "texts", "help"])
def test_without_help_it_is_the_wrapped_ranker(part: str) -> None:
    train, test = shop(topical=part != "help"), shop(seed=1)
    if part == "ids":
        train = train.replace(doc_id=None)
    if part == "texts":
        train = train.replace(query_columns={})
    ranker = PrecedentRanker(FEW).fit(train)
    assert ranker.precedents_ is None
    assert np.array_equal(ranker.predict(test), FEW.fit(train).predict(test))
    assert "no precedents" in ranker.remarks()[-1]


@pytest.mark.parametrize("group", [None, "topic"])
def test_saves_and_loads(group: str | None, tmp_path: Path) -> None:
    train, test = shop(), shop(seed=1)
    ranker = PrecedentRanker("single(learner=rankrls)", group_column=group, decide=False).fit(train)
    ranker.save(tmp_path / "model")
    for queries in (train, test):
        assert np.array_equal(load(tmp_path / "model").predict(queries), ranker.predict(queries))
    record = read_model(tmp_path / "model")
    with pytest.raises(StoreError, match="not the name of a ranker"):
        from_record(replace(record, params={**record.params, "ranker": "single(learner=rankrls)"}))


def test_queries_without_a_text_have_no_precedents() -> None:
    train, test = shop(), shop(seed=1)
    columns = Precedents().fit(train).columns(test.replace(query_columns={}))
    assert not columns[:, NAMES.index("precedents")].any()


def test_explains_by_the_texts_of_similar_queries(tmp_path: Path) -> None:
    queries = shop()
    unjudged = np.flatnonzero(queries.query_of_row == 0)
    grades = np.where(np.isin(np.arange(queries.n_rows), unjudged), np.nan, 3.0 * queries.grades)
    train = queries.replace(y=grades.astype(np.float32))
    ranker = PrecedentRanker(FEW, decide=False).fit(train)
    query = shop(seed=1)[3]
    [explained] = ranker.explain(query)
    assert query.doc_id is not None
    texts = train.query_columns[TEXT].tolist()
    for document, found in zip(query.doc_id.tolist(), explained.precedents, strict=True):
        similar = [each.similarity for each in found]
        assert similar == sorted(similar, reverse=True)
        for each in found:
            own = train[texts.index(each.query)]
            assert own.doc_id is not None
            grade = own.grades[own.doc_id == document]
            assert grade == (0 if each.grade is None else each.grade)
            assert (each.grade is None) == (each.query == texts[0])
    told = dict.fromkeys((0, 3), False)
    for row, found in enumerate(explained.precedents):
        nearest = next(each for each in found if each.grade is not None)
        words = f"judged {nearest.grade:g} of 3 for *{nearest.query}* (similarity {nearest.similarity:.2f})"
        assert explained.judged(row).startswith(words)
        told[nearest.grade] = True
    assert all(told.values())
    moved = explained.rank != explained.rank_without
    assert moved.any()
    assert str(explained).count("; without precedents it would be") == sum(moved[explained.rank <= 10])
    ranker.save(tmp_path / "model")
    assert str(load(tmp_path / "model").explain(query)[0]) == str(explained)


def test_explains_what_has_no_precedents() -> None:
    train, query = shop(), shop(seed=1)[0]
    unused = PrecedentRanker(FEW).fit(train.replace(doc_id=None))
    assert str(unused.explain(query)[0]) == (
        f"*{query.query_columns[TEXT][0]}*: no judgments for similar queries, so other features alone rank it"
    )
    nobody = train.replace(y=np.where(train.query_of_row == 0, train.grades, np.nan).astype(np.float32))
    [explained] = PrecedentRanker(FEW, decide=False).fit(nobody).explain(query)
    assert any(explained.judged(row).startswith("not judged, but a hit for *") for row in range(query.n_rows))


def test_explains_choices_and_precedents_of_a_document() -> None:
    train, query = shop(), shop(seed=1)[0]
    ranker = ChoiceRanker(PrecedentRanker(FEW, decide=False)).fit(train)
    [explained] = ranker.explain(query)
    assert explained.judged(0).startswith("judged ")
    assert explained.judged(0) in str(explained)


def test_says_what_is_missing() -> None:
    train = shop()
    with pytest.raises(ParameterError, match=r"group 'movie' is not a query column: choose one of \['text', 'topic'\]"):
        PrecedentRanker(FEW, group_column="movie").fit(train)
    assert "at least 4 queries" in PrecedentRanker("single").fit(train[:3]).remarks()[-1]
    with pytest.raises(DataError, match="pass doc_id"):
        PrecedentRanker(FEW, decide=False).fit(train).predict(train.replace(doc_id=None))
    with pytest.raises(DataError, match="rename them"):
        PrecedentRanker(FEW).fit(train.replace(feature_names=("bm25", "precedents")))
