"""Explanations name judged queries by their texts and documents by their titles."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from kinrank import KinRanker, KnnRanker, QuerySet, load
from kinrank.data.hashes import LONGEST, TextTable
from kinrank.datasets import make_two_camps
from kinrank.rankers import Ranker
from kinrank.rankers._names import Names

CAMPS = make_two_camps(n_queries=60, n_docs=6, seed=0)
NAMED = CAMPS.replace(
    query_columns={**CAMPS.query_columns, "text": np.array([f"wish number {qid}" for qid in CAMPS.qid])},
    doc_title=np.array([f"The {document}th movie" for document in CAMPS.doc_id.tolist()]),
)


@pytest.mark.parametrize(
    "ranker",
    [
        KnnRanker(5, encoder=None),
        KinRanker(5, encoder=None, settings={"n_members": 2, "n_repeats": 1}),
        KinRanker(5, encoder=None, settings={"n_members": 2, "n_repeats": 1, "n_cells": 6}),
        KinRanker(5, base="single", encoder=None, settings={"n_members": 2, "n_repeats": 1}),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_texts_and_titles_replace_numbers_also_after_loading(ranker: Ranker, tmp_path: Path):
    ranker.fit(NAMED[:50]).save(tmp_path / "model")
    query = NAMED[50:51].replace(doc_title=None)
    for each in (ranker, load(tmp_path / "model"), pickle.loads(pickle.dumps(ranker))):
        [explained] = each.explain(query)
        kin = getattr(explained, "wrapped", None) or explained
        assert kin.neighbor_names == [f"wish number {qid}" for qid in kin.neighbors.tolist()]
        assert str(explained).startswith("*wish number 50*: ")
        assert f"nearest *{kin.neighbor_names[0]}* (" in str(explained)
        # The titles of other documents are known from the fit, those of this query's own come with it.
        assert explained.document_name(0) == str(query.doc_id[0])
        assert each.explain(NAMED[50:51])[0].document_name(0) == NAMED.doc_title[query_rows(50)][0]
        assert each.explain(query.replace(doc_id=NAMED.doc_id[query_rows(3)]))[0].document_name(0) == "The 18th movie"


def query_rows(query: int) -> slice:
    return slice(int(CAMPS.offsets[query]), int(CAMPS.offsets[query + 1]))


def test_without_texts_ids_remain():
    [explained] = KnnRanker(5).fit(CAMPS[:50]).explain(CAMPS[50:51])
    assert explained.neighbor_names == [str(qid) for qid in explained.neighbors.tolist()]
    assert str(explained).startswith("query 50: learned from 5 judged queries, nearest ")


def test_added_queries_have_names_and_removed_ones_are_not_saved(tmp_path: Path):
    ranker = KnnRanker(3, encoder=None).fit(NAMED[:50])
    ranker.copy().add(NAMED[50:55])
    for query in NAMED[50:55]:
        ranker.add(query)
    assert ranker.names_.texts.find(np.array([54])) == ["wish number 54"]
    ranker.remove([54])
    ranker.save(tmp_path / "model")
    assert load(tmp_path / "model").names_.texts.find(np.array([53, 54])) == ["wish number 53", None]


def test_judged_query_is_not_listed_as_its_own_neighbor():
    ranker = KnnRanker(4, encoder=None).fit(NAMED)
    [explained] = ranker.explain(NAMED[7:8])
    assert explained.neighbors[0] == 7
    assert "*wish number 7* (" not in str(explained)


def test_long_texts_are_cut_and_few_bytes_are_kept():
    table = TextTable.of(np.arange(3), np.array(["a" * 500, "", "ü"]))
    assert table.find(np.arange(3)) == ["a" * LONGEST, None, "ü"]
    assert sum(array.nbytes for array in table.get_state().values()) == LONGEST + 2 + 2 * 16


def test_thousands_of_additions_are_joined():
    names = Names()
    for start in range(0, 60, 1):
        names = names.added(NAMED[start : start + 1])
    for _ in range(2000):
        names = names.added(NAMED[:1])
    assert names.name_queries(NAMED.qid) == NAMED.query_columns["text"].tolist()
    assert len(names.new_texts) < 100


def test_titles_go_through_tables_and_folders(tmp_path: Path):
    table = NAMED.to_table()
    assert QuerySet.from_table(table).doc_title.tolist() == NAMED.doc_title.tolist()
    renamed = table.rename_columns(["name" if name == "doc_title" else name for name in table.column_names])
    assert QuerySet.from_table(renamed, title="name").doc_title.tolist() == NAMED.doc_title.tolist()
    NAMED.save(tmp_path / "queries")
    assert QuerySet.open(tmp_path / "queries")[3].doc_title.tolist() == NAMED[3].doc_title.tolist()
    with pytest.raises(ValueError, match="no column 'caption' for the titles"):
        QuerySet.from_table(table, title="caption")
