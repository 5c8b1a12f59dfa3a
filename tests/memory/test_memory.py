"""Memory for any retriever: its order, what it learns and forgets, and that it answers the same when opened again."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import kinrank
from kinrank.errors import DataError, ForeignFolderError, NewerFormatError, ParameterError, StoreError
from kinrank.kin.questions import TextQuestions, VectorQuestions
from kinrank.memory.ledger import Ledger
from kinrank.memory.memory import Hit, Memory

QUESTION = "How do I reset my password?"
ALIKE = "I want to reset my password"
OTHER = "opening hours on sunday"
DOCUMENTS = ["billing", "login", "account", "hours"]


@pytest.fixture
def memory() -> Memory:
    return Memory(":memory:")


def order(hits: list[Hit]) -> list[str | int]:
    return [hit.id for hit in hits]


def teach(memory: Memory, times: int = 3, question: str = QUESTION, document: str = "account") -> None:
    for user in range(times):
        memory.learn(question, DOCUMENTS, [document], user=user)


def test_public_name():
    assert kinrank.Memory is Memory


# --- the order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [None, [0.5, 0.5, 0.1, 0.5], [3.0, -1.0, 2.0, 2.0], [1e300, -1e300, 0.0, 1.0]])
def test_empty_memory_keeps_the_order_of_the_retriever(memory: Memory, scores: list[float] | None):
    expected = range(4) if scores is None else np.argsort(-np.array(scores), kind="stable")
    assert [hit.place for hit in memory.rerank(QUESTION, DOCUMENTS, scores)] == list(expected)
    teach(memory)
    assert [hit.place for hit in memory.rerank(QUESTION, ["w", "x", "y", "z"], scores)] == list(expected)


def test_order_survives_many_equal_and_random_scores(memory: Memory):
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 300):
        for scores in (np.zeros(n), rng.normal(size=n), rng.integers(0, 3, n)):
            expected = np.argsort(-scores, kind="stable").tolist()
            assert [hit.place for hit in memory.rerank(QUESTION, list(range(n)), scores)] == expected


def test_chosen_document_comes_first_for_the_question_and_for_one_like_it(memory: Memory):
    teach(memory)
    assert order(memory.rerank(QUESTION, DOCUMENTS))[0] == "account"
    assert order(memory.rerank(ALIKE, DOCUMENTS))[0] == "account"
    assert order(memory.rerank(OTHER, DOCUMENTS))[0] == "billing"


def test_disliked_document_falls(memory: Memory):
    for user in range(3):
        memory.learn(QUESTION, DOCUMENTS, disliked=["billing"], liked=["login"], user=user)
    assert order(memory.rerank(ALIKE, DOCUMENTS)) == ["login", "billing", "account", "hours"]
    hits = {hit.id: hit for hit in memory.rerank(ALIKE, DOCUMENTS)}
    assert hits["billing"].score < Memory(":memory:").rerank(ALIKE, DOCUMENTS)[0].score


def test_more_people_lift_more(memory: Memory):
    scores = []
    for user in range(6):
        memory.learn(QUESTION, DOCUMENTS, ["account"], user=user)
        scores.append({hit.id: hit.score for hit in memory.rerank(QUESTION, DOCUMENTS)}["account"])
    assert scores == sorted(scores)


def test_one_person_has_one_vote(memory: Memory):
    teach(memory, times=1)
    once = memory.rerank(ALIKE, DOCUMENTS)
    for _ in range(20):
        memory.learn(QUESTION, DOCUMENTS, ["account"], user=0)
    assert memory.rerank(ALIKE, DOCUMENTS) == once


def test_many_people_are_needed_if_so_configured():
    memory = Memory(":memory:", people=50)
    teach(memory, times=2)
    assert order(memory.rerank(QUESTION, DOCUMENTS))[0] == "billing"
    teach(memory, times=200)
    assert order(memory.rerank(QUESTION, DOCUMENTS))[0] == "account"


def test_nothing_is_learned_from_silence(memory: Memory):
    memory.learn(QUESTION, DOCUMENTS)
    assert len(memory) == 0


def test_a_later_skip_does_not_replace_a_choice(memory: Memory):
    memory.learn(QUESTION, DOCUMENTS, ["login"], user="ann")
    before = {hit.id: hit.reason for hit in memory.rerank(QUESTION, DOCUMENTS)}["login"]
    memory.learn(QUESTION, DOCUMENTS, ["hours"], user="ann")
    assert {hit.id: hit.reason for hit in memory.rerank(QUESTION, DOCUMENTS)}["login"] == before


def test_questions_differ_neither_by_case_nor_by_spaces(memory: Memory):
    memory.learn(QUESTION, DOCUMENTS, ["account"], user=1)
    memory.learn(f"  {QUESTION.upper()} ", DOCUMENTS, ["account"], user=2)
    assert len(memory) == 1


# --- reasons ----------------------------------------------------------------------------------------------------------


def test_reasons(memory: Memory):
    reasons = {hit.id: hit.reason for hit in memory.rerank(QUESTION, DOCUMENTS)}
    assert set(reasons.values()) == {"the retriever's place: nothing is known of it"}
    for question in (QUESTION, "reset my password", "how do I reset a password"):
        memory.learn(question, DOCUMENTS, ["account"], user=question)
    reasons = {hit.id: hit.reason for hit in memory.rerank(QUESTION, DOCUMENTS)}
    assert reasons["account"] == f"chosen for *{QUESTION}* and 2 more"
    assert reasons["login"] == f"passed over for *{QUESTION}* and 2 more"
    reasons = {hit.id: hit.reason for hit in memory.rerank("zzz", DOCUMENTS)}
    assert reasons["account"] == "chosen before, but for no question like this"
    assert reasons["login"] == "the retriever's place: not chosen for any question like this"


# --- documents --------------------------------------------------------------------------------------------------------


def test_votes_belong_to_the_document_whatever_its_text_is(memory: Memory):
    old, new = ("account", "Press reset."), ("account", "Call us.")
    for user in range(50):
        memory.learn(QUESTION, [("billing", "Pay."), old], [old], user=user)
    before = memory.rerank(QUESTION, [("billing", "Pay."), old])
    assert before[0].id == "account"
    memory.learn(OTHER, [("account", "A snippet that one caller made up."), "hours"], ["hours"], user="mallory")
    assert memory.rerank(QUESTION, [("billing", "Pay."), new])[0].id == "account"
    assert [hit.id for hit in memory.recall(QUESTION)] == ["account"]
    assert memory.unlearn(QUESTION, [old], user=7) == 1


@pytest.mark.parametrize(
    "given",
    [
        7,
        np.int64(7),
        np.uint8(7),
        UUID("8c1f6a4e-52f1-4b0c-9a3d-000000000007"),
        "caf\udce9",
        "nul\0",
        "a" * 1000,
        "\ud83d",
    ],
)
def test_ids_of_any_kind_are_known_again(tmp_path: Path, given: Any):
    memory = Memory(tmp_path / "memory.db")
    memory.learn(QUESTION, ["billing", given], [given], user=given)
    memory.close()
    memory = Memory(tmp_path / "memory.db")
    first = memory.rerank(ALIKE, ["billing", given])[0]
    assert first.id is given
    assert memory.rerank(ALIKE, ["billing", (given, "with a text")])[0].id == given
    assert memory.forget(user=given) == 2
    assert memory.unlearn(QUESTION, [given], user=given) == 0


@pytest.mark.parametrize("given", [None, 1.5, b"account", ["account"], ("account",), ("a", "b", "c"), ("a", 1)])
def test_what_is_no_id_raises(memory: Memory, given: Any):
    with pytest.raises(DataError, match="an id, a text or a pair of both, got"):
        memory.rerank(QUESTION, ["billing", given])
    with pytest.raises(DataError, match="an id, a text or a pair of both, got"):
        memory.learn(QUESTION, ["billing"], [given])


def test_questions_with_characters_that_sqlite_cannot_store(memory: Memory):
    for question in ("parts \ud83d of emoji", "nul \0 inside", "caf\udce9"):
        teach(memory, question=question)
        assert order(memory.rerank(question, DOCUMENTS))[0] == "account"
    assert len(memory) == 3


def test_texts_without_ids_are_documents(memory: Memory):
    texts = ["You pay by card. " * 40, "Press the button. " * 40]
    teach_texts = [memory.learn(QUESTION, texts, [texts[1]], user=user) for user in range(3)]
    assert len(teach_texts) == 3
    assert order(memory.rerank(ALIKE, texts)) == texts[::-1]


def test_ids_may_be_numbers(memory: Memory):
    for user in range(3):
        memory.learn(QUESTION, [7, 8], [8], user=user)
    assert order(memory.rerank(ALIKE, [7, 8])) == [8, 7]
    assert order(memory.rerank(ALIKE, ["7", "8"])) == ["8", "7"]


def test_recall_finds_what_the_retriever_did_not(memory: Memory):
    teach(memory)
    teach(memory, question=OTHER, document="hours")
    assert order(memory.recall(ALIKE)) == ["account"]
    assert memory.recall(ALIKE, exclude=["account"]) == []
    teach(memory, document="login")
    assert order(memory.recall(ALIKE, 1, exclude=["account"])) == ["login"]
    assert order(memory.recall(ALIKE, 1, exclude=["login"])) == ["account"]
    assert memory.recall(ALIKE, 0) == []
    hits = memory.rerank(ALIKE, ["billing", "login"], recall=5)
    assert {hit.id: hit.place for hit in hits} == {"billing": 0, "login": 1, "account": -1}


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_a_thumb_can_be_taken_back(memory: Memory):
    teach(memory)
    before = memory.rerank(ALIKE, DOCUMENTS)
    memory.learn(QUESTION, liked=["hours"], user="eve")
    assert memory.rerank(ALIKE, DOCUMENTS) != before
    assert memory.unlearn(QUESTION, ["hours"], user="eve") == 1
    assert memory.rerank(ALIKE, DOCUMENTS) == before
    memory.learn(QUESTION, liked=["hours"])
    assert memory.unlearn(QUESTION, ["hours"]) == 1
    assert memory.rerank(ALIKE, DOCUMENTS) == before
    assert memory.unlearn(QUESTION, ["hours"], user="nobody") == 0


@pytest.mark.parametrize(
    "wanted", [{"user": "eve"}, {"document": "hours"}, {"question": OTHER}, {"user": "eve", "document": "hours"}]
)
def test_what_is_forgotten_was_never_learned(wanted: dict[str, str], tmp_path: Path):
    memory, never = Memory(tmp_path / "memory.db"), Memory(":memory:")
    for each in (memory, never):
        teach(each)
    memory.learn(OTHER, liked=["hours"], user="eve")
    memory.rerank(OTHER, DOCUMENTS)
    assert memory.forget(**wanted) == 1
    for each in (memory, Memory(tmp_path / "memory.db")):
        assert len(each) == 1
        for question in (QUESTION, ALIKE, OTHER):
            assert each.rerank(question, DOCUMENTS) == never.rerank(question, DOCUMENTS)
    stored = Path(tmp_path / "memory.db")
    assert sqlite3.connect(stored).execute("SELECT count(*) FROM memory_question").fetchone() == (1,)


def test_old_votes_are_forgotten(memory: Memory):
    teach(memory)
    assert memory.forget(before=0.0) == 0
    assert memory.forget(before=1e11) == 9
    assert len(memory) == 0


def test_whole_days_before_a_time_are_forgotten(memory: Memory, monkeypatch: pytest.MonkeyPatch):
    day = 86_400.0
    for number in (100, 101, 102):
        monkeypatch.setattr("time.time", lambda number=number: number * day + 5.0)
        memory.learn(QUESTION, ["account"], ["account"], user=number)
    assert memory.forget(before=100 * day + 6.0) == 0  # that day is not over
    assert memory.forget(before=101 * day - 1.0) == 0
    assert memory.forget(before=101 * day) == 1
    assert memory.forget(before=102 * day) == 1
    assert memory.unlearn(QUESTION, ["account"], user=102) == 1


# --- how far similar questions agree --------------------------------------------------------------------------------


def taught(agree: bool) -> Memory:
    """Return a memory of pairs of similar questions that chose the same, or never did."""
    memory = Memory(":memory:")
    rng = np.random.default_rng(0)
    for number in range(60):
        topic = " ".join(rng.choice([f"{a}{b}" for a in "bdgklmnprst" for b in "aeiou"], 4 + number % 3))
        for half in range(2):
            chosen = f"d{number}" if agree else f"d{number}-{half}"
            memory.learn(f"{topic} {['now', 'then'][half]}", [chosen], [chosen], user=f"{number} {half}")
    memory.learn(QUESTION, DOCUMENTS, ["account"], user=1)
    return memory


def test_votes_of_similar_questions_count_as_far_as_such_questions_agreed():
    scores = {}
    for agree in (True, False):
        memory = taught(agree)
        hits = memory.rerank(ALIKE, DOCUMENTS)
        assert order(hits)[0] == "account"
        assert order(memory.rerank(QUESTION, DOCUMENTS))[0] == "account"  # the same question: nothing to be learned
        scores[agree] = memory.recall(ALIKE, 1)[0].score  # without what the place among the hits says
    assert scores[True] > 1.2 * scores[False]


def test_agreement_is_that_of_the_votes_that_are_left(tmp_path: Path):
    memory = taught(agree=True)

    def counted() -> tuple[int, int]:
        pairs = memory._snapshot.pairs
        return int((pairs.same >= 0).sum()), int(pairs.same[pairs.same > 0].sum())

    before = counted()
    memory.learn("something else", ["x"], ["x"], user="eve")
    memory.learn(f"{QUESTION} eve", ["account"], ["account"], user="eve")
    assert counted()[1] > before[1] > 0
    memory.forget(user="eve")
    assert counted() == before
    for number in range(60):
        for half in range(2):
            memory.forget(user=f"{number} {half}")
    assert len(memory._snapshot.pairs.same) == 0


# --- the file ---------------------------------------------------------------------------------------------------------


def words(rng: np.random.Generator) -> str:
    vocabulary = ["reset", "password", "card", "pay", "open", "hours", "login", "account", "team", "delete", "invoice"]
    return " ".join(rng.choice(vocabulary, 3))


@pytest.mark.parametrize("n", [1, 3, 255, 256, 300, 700])
def test_reopening_gives_the_same_answers(n: int, tmp_path: Path):
    rng = np.random.default_rng(n)
    memory = Memory(tmp_path / "memory.db")
    for number in range(n):
        memory.learn(f"{words(rng)} {number}", DOCUMENTS, [DOCUMENTS[rng.integers(4)]], user=number)
    asked = [words(rng) for _ in range(20)]
    answers = [memory.rerank(question, DOCUMENTS, recall=3) for question in asked]
    memory.close()
    assert [Memory(tmp_path / "memory.db").rerank(question, DOCUMENTS, recall=3) for question in asked] == answers


def test_closing_waits_for_calls_of_other_threads(tmp_path: Path):
    # SQLite ends the process if a connection is closed while another thread uses it.
    memory = Memory(tmp_path / "memory.db")
    teach(memory)
    with ThreadPoolExecutor(1) as pool, memory._lock:
        closed = pool.submit(memory.close)
        assert not wait([closed], timeout=0.05).done
        assert order(memory.rerank(ALIKE, DOCUMENTS))[0] == "account"
    closed.result()
    with pytest.raises(StoreError):
        memory.rerank(ALIKE, DOCUMENTS)


def test_two_processes_share_a_file(tmp_path: Path):
    one, two = Memory(tmp_path / "memory.db"), Memory(tmp_path / "memory.db")
    teach(one)
    assert order(two.rerank(ALIKE, DOCUMENTS))[0] == "account"
    two.learn(OTHER, DOCUMENTS, ["hours"], user=1)
    assert one.rerank(OTHER, DOCUMENTS) == two.rerank(OTHER, DOCUMENTS)
    two.forget(question=QUESTION)
    assert one.rerank(ALIKE, DOCUMENTS) == two.rerank(ALIKE, DOCUMENTS)
    assert len(one) == 1


def test_only_hashes_of_people_are_kept(tmp_path: Path):
    memory = Memory(tmp_path / "memory.db")
    memory.learn(QUESTION, DOCUMENTS, ["account"], user="ann@example.org")
    memory.close()
    assert b"example.org" not in (tmp_path / "memory.db").read_bytes()


def test_a_failed_call_changes_nothing(memory: Memory, monkeypatch: pytest.MonkeyPatch):
    teach(memory)
    before = memory.rerank(ALIKE, DOCUMENTS)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("power is off")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_commit", fails)
        with pytest.raises(RuntimeError, match="power is off"):
            memory.learn(OTHER, DOCUMENTS, ["hours"])
    assert memory.rerank(ALIKE, DOCUMENTS) == before
    assert len(memory) == 1


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_vectors_in_place_of_texts(tmp_path: Path):
    memory = Memory(tmp_path / "memory.db")
    for user in range(3):
        memory.learn("car", DOCUMENTS, ["hours"], user=user, vector=[1.0, 0.1])
    for each in (memory, Memory(tmp_path / "memory.db")):
        assert order(each.rerank("automobile", DOCUMENTS, vector=[2.0, 0.2]))[0] == "hours"
        assert order(each.rerank("automobile", DOCUMENTS, vector=[-0.1, 1.0]))[0] == "billing"
        assert order(each.rerank("automobile", DOCUMENTS)) == DOCUMENTS
        assert order(each.rerank("the car", DOCUMENTS))[0] == "hours"  # by letters
        with pytest.raises(DataError, match="of 2 finite numbers"):
            each.rerank("automobile", DOCUMENTS, vector=[1.0])


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_empty_memory_takes_vectors(memory: Memory, forgotten: bool):
    if forgotten:
        memory.learn("car", DOCUMENTS, ["hours"], user="ann", vector=[1.0, 0.1])
        memory.forget(user="ann")
    assert order(memory.rerank("car", DOCUMENTS, vector=[1.0, 0.1])) == DOCUMENTS
    assert memory.recall("car", vector=[1.0, 0.1]) == []
    memory.learn("car", DOCUMENTS, ["hours"], vector=[1.0, 0.1])
    assert order(memory.rerank("auto", DOCUMENTS, vector=[1.0, 0.1]))[0] == "hours"


def test_questions_with_and_without_a_vector_are_found_by_letters(memory: Memory):
    teach(memory)
    memory.learn("car", DOCUMENTS, ["hours"], vector=[1.0, 0.1])
    for vector in (None, [1.0, 0.1], [0.1, 1.0], [0.0, 0.0]):
        assert order(memory.rerank(QUESTION, DOCUMENTS, vector=vector))[0] == "account"
        assert order(memory.rerank("car", DOCUMENTS, vector=vector))[0] == "hours"


# --- the index --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 511, 512, 900])
def test_index_does_not_depend_on_when_questions_came(n: int):
    rng = np.random.default_rng(1)
    texts = [words(rng) for _ in range(n)]
    at_once, one_by_one = TextQuestions(), TextQuestions()
    at_once.add(texts)
    for text in texts:
        one_by_one.add([text])
    opened = TextQuestions().set_state(one_by_one.get_state(), texts)
    for text in ["reset password", "invoice card pay", "xyz", ""]:
        for each in (one_by_one, opened):
            for one, other in zip(at_once.nearest(text, 9), each.nearest(text, 9), strict=True):
                assert one.tolist() == other.tolist()


def test_index_finds_the_most_similar_of_all():
    rng = np.random.default_rng(2)
    texts = [f"{words(rng)} {number}" for number in range(600)]
    questions = TextQuestions()
    questions.add(texts)
    for place in (0, 255, 256, 511, 512, 599):
        places, similar = questions.nearest(texts[place], 3)
        assert places[0] == place
        assert similar[0] == pytest.approx(1.0, abs=1e-5)
        assert similar.tolist() == sorted(similar.tolist(), reverse=True)


def test_vectors_are_compared_by_cosine():
    questions = VectorQuestions()
    assert len(questions.nearest([1.0], 3)[0]) == 0
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(50, 4))
    questions.add(list(vectors))
    cosine = vectors @ vectors[7] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[7])
    places, similar = questions.nearest(vectors[7], 5)
    assert places.tolist() == np.argsort(-cosine)[:5].tolist()
    np.testing.assert_allclose(similar, np.sort(cosine)[:-6:-1], atol=1e-6)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors(memory: Memory, tmp_path: Path):
    with pytest.raises(ParameterError, match=r"a path or postgresql://..., got 'mysql://...@localhost"):
        Memory("mysql://ann:secret@localhost/memory")
    with pytest.raises(ParameterError, match="people must be 0 or more, got -1"):
        Memory(":memory:", people=-1)
    with pytest.raises(ParameterError, match="neighbors must be 1 or more, got 0"):
        Memory(":memory:", neighbors=0)
    with pytest.raises(DataError, match=r"one finite number per document \(4\)"):
        memory.rerank(QUESTION, DOCUMENTS, [1.0])
    with pytest.raises(DataError, match="one finite number per document"):
        memory.rerank(QUESTION, DOCUMENTS, [1.0, 2.0, float("nan"), 3.0])
    with pytest.raises(DataError, match="an id, a text or a pair of both, got None"):
        memory.rerank(QUESTION, [None])  # type: ignore[list-item]
    with pytest.raises(DataError, match="question must be a str"):
        memory.rerank(7, DOCUMENTS)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="chosen must be a list of documents, got 'account'"):
        memory.learn(QUESTION, DOCUMENTS, "account")
    with pytest.raises(DataError, match="'login' is disliked and also chosen"):
        memory.learn(QUESTION, DOCUMENTS, ["login"], disliked=["login"])
    with pytest.raises(DataError, match="documents must be a list"):
        memory.unlearn(QUESTION, "login")
    with pytest.raises(ParameterError, match="forget needs a user, a document"):
        memory.forget()
    with pytest.raises(StoreError, match="cannot be opened as a memory"):
        Memory(tmp_path / "no" / "memory.db")
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE shops (name TEXT)")
    with pytest.raises(ForeignFolderError, match="a database of something else"):
        Memory(tmp_path / "other.db")
    Memory(tmp_path / "newer.db").close()
    with sqlite3.connect(tmp_path / "newer.db") as database:
        database.execute("UPDATE memory_setting SET value = '99' WHERE name = 'format'")
    with pytest.raises(NewerFormatError, match="written by a newer kinrank"):
        Memory(tmp_path / "newer.db")


# --- training ---------------------------------------------------------------------------------------------------------


def test_hits_become_queries_with_votes_as_grades(memory: Memory):
    for user in range(3):
        memory.learn(QUESTION, DOCUMENTS, ["account"], user=user)
    old, new = ("hours", "Nine to five."), ("hours", "Ten to four.")
    memory.learn(QUESTION, [old], liked=[old], user=1)
    queries = memory.to_queries(
        {QUESTION: (DOCUMENTS, [3.0, 1.0, 2.0, 1.0]), "nothing found": ([], None), OTHER: ([7, "account"], None)}
    )
    assert queries.query_columns["text"].tolist() == [QUESTION, OTHER]
    assert queries.doc_id is not None
    assert queries.doc_id.tolist() == [*map(str, DOCUMENTS), "7", "account"]
    grades = dict(zip(queries.doc_id.tolist()[:4], queries.grades.tolist()[:4], strict=True))
    assert grades == {"billing": 0, "login": 0, "account": 3, "hours": 3}
    assert queries.grades.tolist()[4:] == [0, 0]  # of another question
    assert queries.feature_names == ("rank", "score")
    np.testing.assert_allclose(queries.X[:4, 1], [1.0, 0.0, 0.5, 0.0])
    assert memory.to_queries({QUESTION: ([old], None)}).grades.tolist() == [3]
    assert memory.to_queries({QUESTION: ([new], None)}).grades.tolist() == [3]  # whatever its text is now


def test_training_refuses_too_few_questions(memory: Memory):
    class Never:
        def fit(self, X: Any, /) -> None:
            raise AssertionError("fitted")

    with pytest.raises(DataError, match=r"training takes 200 questions .* got 0 of 0: use rerank"):
        memory.train(Never(), lambda _: (DOCUMENTS, None))
    teach(memory)
    with pytest.raises(DataError, match="got 1 of 1"):
        memory.train(Never(), lambda _: (DOCUMENTS, None))
    with pytest.raises(DataError, match="got 0 of 1"):  # the retriever does not find what was chosen
        memory.train(Never(), lambda _: (["billing"], None))
    with pytest.raises(DataError, match="got 0 of 1"):
        memory.train(Never(), lambda _: ([], None))
