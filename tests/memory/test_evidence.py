from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.data.hashes import hash_arrow, hash_texts, query_keys
from kinrank.data.texts import normalize_text
from kinrank.errors import DamagedFolderError, DataError, ForeignFolderError, ParameterError
from kinrank.memory.evidence import JUDGED, NO_DAY, Evidence, write_sorted_cells

CELLS = st.lists(
    st.tuples(
        st.sampled_from(["alien", "heat", "up"]),
        st.sampled_from(["d1", "d2", "d3"]),
        st.integers(-1, 4),
        st.integers(1, 9),
    ),
    max_size=30,
)


def collect(cells: list[tuple[str, str, int, int]]) -> Evidence:
    query, document, day, looks = ([cell[part] for cell in cells] for part in range(4))
    return Evidence.from_cells(np.array(query, dtype=str), np.array(document, dtype=str), looks, looks, day)


def same(a: Evidence, b: Evidence) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.get_state().values(), b.get_state().values(), strict=True))


def asked(*documents: str, text: str = "alien") -> QuerySet:
    rows = np.zeros((len(documents), 1))
    return QuerySet.from_arrays(rows, qid=["q"] * len(rows), doc_id=documents, query_columns={"text": [text]})


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9), max_size=5))
def test_arrow_and_numpy_hash_alike(texts: list[str]) -> None:
    hashes, normal = hash_arrow(pa.array(texts, pa.string()))
    assert np.array_equal(hashes, hash_texts(np.array(texts, dtype=np.str_)))
    assert all(normalize_text(text) == text for text, plain in zip(texts, normal.tolist(), strict=True) if plain)


@given(st.lists(st.text(st.characters(max_codepoint=0x100, exclude_characters="\0"), max_size=9), max_size=3))
def test_queries_are_hashed_as_they_are_normalized(texts: list[str]) -> None:
    normalized = np.array([normalize_text(text) for text in texts], dtype=np.str_)
    assert np.array_equal(query_keys(np.array(texts, dtype=np.str_)), hash_texts(normalized))


def test_a_slice_of_arrow_hashes_as_its_texts():
    assert np.array_equal(hash_arrow(pa.array(["a", "bé", "c"]).slice(1))[0], hash_texts(np.array(["bé", "c"])))
    texts = ["iron man 2", "c++", "", " a", "a ", "a  b", "A", "é", "a\tb"]
    assert hash_arrow(pa.array(texts))[1].tolist() == [True, True, *[False] * 7]


def test_hashes_of_different_ids_differ():
    assert len(np.unique(hash_texts(np.arange(100_000)))) == 100_000


@given(CELLS, CELLS)
def test_merged_is_built_from_all_cells(a: list, b: list) -> None:
    assert same(collect(a).merged(collect(b)), collect(a + b))


@given(CELLS, st.integers(1, 7))
def test_a_stream_of_sorted_cells_is_the_same(tmp_path_factory: pytest.TempPathFactory, cells: list, size: int) -> None:
    expected = collect(cells)
    state = expected.get_state()
    query = np.repeat(state["query"], np.diff(state["offsets"]))
    # every cell twice, half of its looks each
    columns = [np.repeat(values, 2) for values in (query, state["document"], state["day"])]
    columns += [np.repeat(state[name], 2) / 2 for name in ("looks", "choices")]
    batches = ([values[start : start + size] for values in columns] for start in range(0, len(columns[0]), size))
    written = write_sorted_cells(tmp_path_factory.mktemp("stream") / "evidence", batches, {}, lambda: expected.ids)
    assert same(written, expected)
    assert written.days == expected.days


def test_folders_are_merged_on_disk(tmp_path: Path):
    one, two = collect([("alien", "d1", 3, 2), ("up", "d1", 3, 2)]), collect([("alien", "d1", 4, 5)])
    one.save(tmp_path / "evidence")
    Evidence.open(tmp_path / "evidence").save_merged(two, tmp_path / "evidence")
    found = Evidence.open(tmp_path / "evidence", verify=True)
    assert same(found, one.merged(two))
    assert found.days == (3, 4)
    nothing = collect([])
    nothing.save_merged(nothing, tmp_path / "empty")
    assert Evidence.open(tmp_path / "empty").totals(asked("d1")).looks.tolist() == [0]


def test_totals_find_candidates_in_any_order_and_spelling():
    evidence = collect([("alien", "d1", 0, 2), ("alien", "d3", 1, 4), ("alien", "d3", 2, 1), ("up", "d2", 2, 9)])
    found = evidence.totals(asked("d3", "d2", "d1", text=" ALIEN "))
    assert found.looks.tolist() == [5, 0, 2]
    assert evidence.totals(asked("d3", text="aliens")).looks.tolist() == [0]
    assert evidence.totals(asked("d3").replace(doc_id=None)).looks.tolist() == [0]
    by_id = QuerySet.from_arrays([[0.0]], qid=["up"], doc_id=["d2"])
    assert evidence.totals(by_id).looks.tolist() == [0]  # an id is not what people typed


def test_evidence_ages_from_the_last_day():
    evidence = collect([("alien", "d1", 0, 8), ("alien", "d1", 4, 8), ("alien", "d2", NO_DAY, 8)])
    assert evidence.totals(asked("d1", "d2"), half_life=2).looks.tolist() == [8 / 4 + 8, 8]
    assert evidence.totals(asked("d1", "d2"), days=(1, 4)).looks.tolist() == [8, 0]
    assert evidence.totals(asked("d1", "d2"), half_life=1, days=(0, 2)).looks.tolist() == [8 / 4, 0]
    with pytest.raises(ParameterError, match="half_life must be above 0, got 0"):
        evidence.totals(asked("d1"), half_life=0)


def test_judgments_are_evidence_that_can_be_replaced():
    judged = asked("d1", "d2", "d3").replace(y=np.array([3, np.nan, 1], dtype=np.float32))
    evidence = collect([("alien", "d1", 0, 2), ("alien", "d2", NO_DAY, 1)]).with_judgments(
        Evidence.of_judgments(judged, 30)
    )
    assert evidence.totals(judged).looks.tolist() == [32, 1, 30]
    assert evidence.totals(judged).choices.tolist() == [32, 1, 10]
    assert evidence.totals(judged, half_life=0.1).looks.tolist() == [32, 1, 30]
    other = Evidence.of_judgments(judged.replace(y=np.array([np.nan, 0, np.nan], dtype=np.float32)), 30)
    again = evidence.with_judgments(other)
    assert again.totals(judged).looks.tolist() == [2, 31, 0]
    assert (again.get_state()["day"] == JUDGED).sum() == 1
    with pytest.raises(DataError, match="have no document ids"):
        Evidence.of_judgments(judged.replace(doc_id=None))
    with pytest.raises(DataError, match="have no texts"):
        Evidence.of_judgments(judged.replace(query_columns={}))
    with pytest.raises(ParameterError, match="looks must be above 0, got -1"):
        Evidence.of_judgments(judged, -1)


def test_a_changed_folder_is_refused(tmp_path: Path):
    collect([("alien", "d1", 0, 2)]).save(tmp_path / "evidence")
    with pytest.raises(ForeignFolderError, match="holds 'evidence', expected 'queries'"):
        QuerySet.open(tmp_path / "evidence")
    [file] = (tmp_path / "evidence").rglob("looks.npy")
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(DamagedFolderError, match=r"looks\.npy has changed"):
        Evidence.open(tmp_path / "evidence", verify=True)
