from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank import Memory
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.memory.tables import Said, read_votes, write_votes


def kinds(path: Path, **columns: str) -> list[tuple[str, str, str]]:
    return [(vote.question, vote.document, vote.kind) for vote in read_votes(path, columns).votes]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_thumbs_of_a_table(tmp_path: Path):
    file = tmp_path / "thumbs.csv"
    file.write_text(
        "created_at,Query,doc_id,Feedback,user_id\n2026-03-01T12:00:00Z,reset password,007,up,ann\n"
        "2026-03-02,opening hours,9,-1,bob\n2026-03-02,opening hours,8,0,bob\n"
    )
    table = read_votes(file)
    assert [(vote.document, vote.kind, vote.user) for vote in table.votes] == [
        ("007", "liked", "ann"),
        ("9", "disliked", "bob"),
    ]
    assert table.votes[0].time == 1_772_366_400
    assert table.left_out == {"no vote": 1}  # of +1, 0 and -1, it is none


def test_zero_among_thumbs_up_is_a_thumb_down(tmp_path: Path):
    rows = [{"question": "q", "document": name, "thumb": value} for name, value in (("a", 1), ("b", 0))]
    assert kinds(written(tmp_path / "thumbs.jsonl", rows)) == [("q", "a", "liked"), ("q", "b", "disliked")]


def test_what_was_not_clicked_is_no_vote(tmp_path: Path):
    table = pa.table({"query": ["q", "q"], "url": ["/a", "/b"], "clicked": [True, False]})
    pq.write_table(table, tmp_path / "clicks.parquet")
    assert kinds(tmp_path / "clicks.parquet") == [("q", "/a", "chosen")]


def test_answers_with_their_sources(tmp_path: Path):
    rows = [
        {"prompt": "how do I reset it?", "citations": [{"id": "d1"}, {"id": "d2"}], "thread_id": "t1"},
        {"prompt": "hello", "citations": []},
    ]
    table = read_votes(written(tmp_path / "chat.jsonl", rows))
    assert [(vote.document, vote.kind, vote.user) for vote in table.votes] == [
        ("d1", "cited", "t1"),
        ("d2", "cited", "t1"),
    ]
    assert table.left_out == {"no document": 1}


def test_columns_can_be_named(tmp_path: Path):
    file = written(tmp_path / "a.jsonl", [{"frage": "q", "antwort": "a"}])
    assert kinds(file, question="frage", document="antwort") == [("q", "a", "chosen")]
    with pytest.raises(
        DataError, match=r"no column for the question among \['frage', 'antwort'\]: name it, as in --col"
    ):
        read_votes(file)
    with pytest.raises(DataError, match="no column 'text' among"):
        read_votes(file, {"question": "text"})
    with pytest.raises(ParameterError, match="unknown column 'grade': the columns of votes are question, document"):
        read_votes(file, {"grade": "frage"})


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("stars.csv", "query,doc_id,rating\nq,a,4\n", DataError, "row 1: '4' in column 'rating' is no vote: write up"),
        ("when.csv", "query,doc_id,time\nq,a,soon\n", DataError, "row 1: 'soon' is no time: write 2026-03-01T12"),
        ("broken.jsonl", '{"query": "q"}\n{', FileFormatError, "line 2: no JSON"),
        ("list.jsonl", "[1]\n", FileFormatError, r"line 1: expected an object, got \[1\]"),
        ("votes.xlsx", "", DataError, "votes are read from .csv, .tsv, .jsonl, .ndjson or .parquet: convert"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: str, error: type[Exception], message: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(error, match=message):
        read_votes(tmp_path / name)


@pytest.mark.parametrize("name", ["votes.csv", "votes.tsv", "votes.jsonl", "votes.parquet"])
def test_what_is_exported_is_known_when_it_is_imported(tmp_path: Path, name: str):
    with Memory(":memory:") as memory:
        for user in ("ann", "bob", None):
            memory.learn("How do I reset it?", ["a", "b"], ["b"], user=user)
        memory.learn("Opening hours, please", disliked=["a"], user="ann")
        assert write_votes(memory.votes(), tmp_path / name) == 7  # two people and the teacher passed over a
        before = memory.rerank("how do I reset this?", ["a", "b", "c"])
        with Memory(":memory:") as other:
            other.learn_votes(read_votes(tmp_path / name).votes)
            after = other.rerank("how do I reset this?", ["a", "b", "c"])
            assert [(hit.id, hit.score) for hit in after] == [(hit.id, pytest.approx(hit.score)) for hit in before]
            assert other.stats().people == memory.stats().people == 2


def test_a_source_counts_once(tmp_path: Path):
    votes = [
        Said("opening hours", "contact", "liked", None, None, None),
        Said("prices", "shop", "liked", "ann", None, 0),
    ]
    with Memory(tmp_path / "memory.db") as memory:
        for _ in range(2):
            memory.learn_votes(votes, source="thumbs of March")
        assert memory.stats().votes == {"liked": 2}
        assert next(str(day) for day in memory.stats().days) == "1970-01-01"
        memory.learn_votes(votes[:1], source="thumbs of April")
        assert memory.stats().votes == {"liked": 3}


def test_what_is_known_can_be_listed():
    with Memory(":memory:", tenant="acme") as memory:
        memory.learn("50% off?", ["shop"], ["shop"], user="ann")
        memory.learn("Opening Hours", ["contact"], ["contact"], user="ann")
        memory.learn("opening  hours", ["shop", "contact"], ["contact"], user="bob")
        [first, second] = memory.questions()
        assert (first.text, first.votes, first.documents, first.people) == ("Opening Hours", 2, 1, 2)
        assert [each.text for each in memory.questions("50%")] == [second.text] == ["50% off?"]
        assert memory.questions("50_") == []
        said = [(vote.document, vote.kind) for vote in memory.votes("OPENING hours")]
        assert said == [("contact", "chosen"), ("shop", "skipped"), ("contact", "chosen")]
        assert repr(memory) == "Memory(':memory:', tenant='acme')"
        assert list(memory.votes("who are you?")) == []


def test_nothing_of_another_tenant_is_listed(tmp_path: Path):
    with Memory(tmp_path / "memory.db", tenant="a") as one, Memory(tmp_path / "memory.db", tenant="ab") as other:
        one.learn("opening hours", ["contact"], ["contact"], user="ann")
        assert other.questions() == []
        assert list(other.votes()) == []
        assert other.stats().votes == {}
        assert len(list(one.votes())) == 1
