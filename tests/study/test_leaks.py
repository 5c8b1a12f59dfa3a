from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common import msrd
from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents
from kinrank.errors import LeakError
from kinrank.study._leaks import Items, find_leaks, leak_warning, most_similar


@pytest.fixture
def queries() -> QuerySet:
    made = make_intents(40, 0, n_docs=10, n_features=6)
    texts = np.array([f"Query number {i}" for i in range(40)], dtype="U30")
    vectors = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    return made.replace(query_columns={"text": texts, "vector": vectors, "topic": np.arange(40) // 4})


def planted(queries: QuerySet, **columns: object) -> QuerySet:
    """Return the last twenty queries, with new values in some columns of the first."""
    test = queries[20:]
    changed = {name: test.query_columns[name].copy() for name in test.query_columns}
    for name, value in columns.items():
        changed[name][0] = value
    return test.replace(query_columns=changed)


def found(train: QuerySet, test: QuerySet, group: str | None = None) -> dict[str, set[tuple[int, int]]]:
    report = find_leaks(train, test, group=group)
    return {
        name: {(leak.test, leak.train, leak.how) for leak in leaks}
        for name, leaks in (("seen", report.seen), ("near", report.near))
    }


def test_no_leaks(queries: QuerySet):
    assert found(queries[:20], queries[20:], "topic") == {"seen": set(), "near": set()}
    assert leak_warning([find_leaks(queries[:20], queries[20:])]) is None


def test_same_id_text_group_or_rows_are_seen(queries: QuerySet):
    train = queries[:20]
    renamed = queries[20:].replace(qid=np.append([3], np.arange(100, 119)))
    assert found(train, renamed)["seen"] == {(0, 3, "id")}
    assert found(train, planted(queries, text="query: NUMBER  3!"))["seen"] == {(0, 3, "text")}
    assert found(train, planted(queries, topic=0), "topic")["seen"] == {(0, 3, "group")}
    assert found(train, planted(queries, topic=0))["seen"] == set()
    bare = queries.replace(query_columns={})
    copied = QuerySet.concat([bare[20:], bare[3:4].replace(qid=np.array([99]))])
    shuffled = copied[20:].X[::-1].copy()
    copied.X[-len(shuffled) :] = shuffled
    assert found(bare[:20], copied)["seen"] == {(20, 3, "rows")}


def test_same_words_close_vector_shared_rows_or_documents_are_near(queries: QuerySet):
    train = queries[:20]
    assert found(train, planted(queries, text="3 number query 3"))["near"] == {(0, 3, "words")}
    close = train.query_columns["vector"][3] * 2 + 0.01
    assert found(train, planted(queries, vector=close))["near"] == {(0, 3, "vector")}
    rows = queries[20:]
    X = rows.X.copy()
    X[:8] = queries[3].X[:8]
    assert found(train, rows.replace(X=X))["near"] == {(0, 3, "some rows")}
    documents = rows.doc_id.copy()
    documents[:10] = queries[3].doc_id
    same = rows.replace(doc_id=documents, y=np.concatenate([queries[3].grades, rows.grades[10:]]))
    assert found(train, same)["near"] == {(0, 3, "relevant documents")}


def test_vectors_are_compared_in_batches():
    made = make_intents(12_000, 0, n_docs=2, n_features=5)
    vectors = np.random.default_rng(0).standard_normal((12_000, 32)).astype(np.float32)
    known = np.random.default_rng(1).permutation(6000)
    vectors[6000:] = 3 * vectors[known] + 0.01
    queries = made.replace(query_columns={"vector": vectors})
    near = {(leak.test, leak.train) for leak in find_leaks(queries[:6000], queries[6000:]).near}
    assert near == set(enumerate(known.tolist()))


def test_common_rows_are_ignored(queries: QuerySet):
    empty = make_intents(300, 0, n_docs=5, n_features=6)
    X = empty.X.copy()
    X[:] = np.tile(np.eye(6, dtype=np.float32)[:5], (300, 1))
    blank = empty.replace(X=X, doc_id=None)
    assert found(blank[:200], blank[200:]) == {"seen": set(), "near": set()}


def test_copy_with_mostly_common_rows_is_seen():
    made = make_intents(300, 0, n_docs=5, n_features=6)
    X = made.X.copy().reshape(300, 5, 6)
    X[:, 1:] = np.eye(6, dtype=np.float32)[:4]  # four rows are in every query, one is unique
    queries = made.replace(X=X.reshape(-1, 6), doc_id=None)
    train, test = queries[:200], queries[200:]
    assert found(train, test) == {"seen": set(), "near": set()}
    copied = QuerySet.concat([test, train[3:4].replace(qid=np.array([999]))])
    copied.X[-5:] = copied.X[-5:][::-1].copy()
    assert found(train, copied)["seen"] == {(100, 3, "rows")}


def test_messages_have_counts_and_an_example(queries: QuerySet):
    train, test = queries[:20], planted(queries, text="query number 3", topic=0)
    report = find_leaks(train, test, group="topic")
    with pytest.raises(
        LeakError, match=r"1 of 20 .*same group: 1, same text: 1\); for example, test query 20 is training query 3"
    ):
        report.raise_if_seen(train, test)
    near = find_leaks(train, planted(queries, text="3 number query"))
    near.raise_if_seen(train, test)
    assert "1 of 20 test queries have a near-duplicate in training" in str(leak_warning([near]))
    assert "2 of 40 test queries" in str(leak_warning([near, near]))


@given(
    st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=6),
    st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=6),
)
def test_most_similar_has_the_largest_jaccard(one: list[set[int]], other: list[set[int]]):
    def items(sets: list[set[int]]) -> Items:
        pairs = [(query, item) for query, some in enumerate(sets) for item in some for _ in range(2)]
        query, item = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return Items(query, item, len(sets))

    position, share, count, same = most_similar(items(one), items(other))
    for query, some in enumerate(one):
        expected = [len(some & each) / len(some | each) if some & each else 0.0 for each in other]
        assert share[query] == pytest.approx(max(expected))
        if share[query]:
            assert expected[position[query]] == pytest.approx(max(expected))
            assert count[query] == len(some & other[position[query]])
        assert same[query] == (len(some) > 1 and some in other)


@pytest.mark.data("text/msrd")
def test_planted_leaks_in_msrd_are_found(data_dir: Path):
    parts = msrd()
    train, test = parts["train"], parts["test"]
    assert find_leaks(train, test, group="movie").seen == ()

    copy = QuerySet.concat([test[:200], train[17:18].replace(qid=np.array(["planted"]))])
    how = {leak.how for leak in find_leaks(train, copy).seen if leak.test == 200 and leak.train == 17}
    assert how == {"rows"}

    movies, counts = np.unique(test.query_columns["movie"], return_counts=True)
    family = np.flatnonzero(test.query_columns["movie"] == movies[counts.argmax()])
    leaking = QuerySet.concat([train, test[family[:1]]])
    rest = test[np.arange(len(test)) != family[0]]
    with pytest.raises(LeakError, match=f"{len(family) - 1} of 3,120 .*same group"):
        find_leaks(leaking, rest, group="movie").raise_if_seen(leaking, rest)
    # Without the group column, the relevant documents show it as a near-duplicate.
    near = {leak.test for leak in find_leaks(leaking, rest).near if leak.how == "relevant documents"}
    before = {leak.test for leak in find_leaks(train, rest).near if leak.how == "relevant documents"}
    assert (near - before) & set((family[1:] - 1).tolist())
