from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kinrank.study._table_check import check_table

ROWS = 24


def table(**changes: Any) -> pa.Table:
    """Return eight queries of three candidates, with some columns added or replaced."""
    rng = np.random.default_rng(0)
    columns = {
        "qid": np.repeat(np.arange(8), 3),
        "y": np.tile([0, 1, 2], 8),
        "doc_id": [f"d{row}" for row in range(ROWS)],
        "bm25": rng.normal(size=ROWS),
    }
    return pa.table({**columns, **changes})


@pytest.mark.parametrize(
    ("changes", "level", "finding"),
    [
        ({"relevance": [1.0, 0.0] * 12}, "note", "'relevance' looks like a grade: dropped"),
        ({"Unnamed: 0": list(range(7, 7 + ROWS))}, "note", "is a row number: dropped"),
        ({"product_id": [3, 9] * 12}, "note", "'product_id' looks like an id: dropped"),
        ({"boost": [2.0] * ROWS}, "note", "'boost' is 2 in every row: dropped"),
        ({"boost": pa.nulls(ROWS)}, "note", "'boost' is empty: dropped"),
        ({"bm25": [None, *range(2, ROWS + 1)]}, "note", "1 values (bm25: 1): filled with the mean"),
        ({"bm25": [np.inf, *range(2, ROWS + 1)]}, "problem", "'bm25' is infinite in 1 rows"),
        ({"qid": list(range(8)) * 3}, "note", "the rows of a query are not adjacent"),
        ({"price": ["1,5", "2,5"] * 12}, "note", "is text that differs within a query"),
        ({"day": pa.array([0] * ROWS, pa.date32())}, "note", "is date32[day], neither a number nor text: dropped"),
        ({"text": ["red"] * ROWS}, "note", "8 queries have 1 different texts"),
        ({"text": ["", "", "", *["red"] * (ROWS - 3)]}, "note", "1 queries have an empty text: they have no kin"),
        ({"shop": np.repeat(["a", "b"], 12)}, "ok", "for --group, if queries of one value must not be split: shop (2"),
        ({"words": np.repeat([1, 2, 3, 4], 6)}, "ok", "'words' is the same for all candidates of a query"),
        ({"weight": [1.0, 2.0] * 12}, "note", "rename it to sample_weight"),
        ({"sample_weight": [0.0, 2.0] * 12}, "note", "12 rows have weight 0"),
        ({"y": [1.0, None] * 12}, "note", "12 of 24 rows are not judged"),
        ({"y": [0.5, 1.0] * 12}, "note", "trees need whole grades from 0 to 30"),
        ({"y": [1] * ROWS}, "problem", "8 of 8 queries have one grade only"),
        ({"y": pa.nulls(ROWS)}, "problem", "no row has a grade"),
        ({"y": ["bad", "good"] * 12}, "problem", "'y' is text ('bad', 'good'): map words to numbers, such as bad = 0"),
        ({"qid": [1] * ROWS}, "note", "one query: nothing can be held out"),
        ({"doc_id": ["d0"] * ROWS}, "note", "16 documents are repeated within their query"),
        ({"doc_id": [None] + ["d"] * 23}, "problem", "'doc_id' is empty in 1 rows, first in row 0"),
    ],
)
def test_findings(changes: dict[str, Any], level: str, finding: str) -> None:
    check = check_table(table(**changes), {})
    assert [found.level for found in check.findings if finding in found.text] == [level], check.findings
    assert check.ready == (level != "problem") == bool(check.commands("t.csv"))


def test_clean_table_has_only_findings_that_are_fine() -> None:
    check = check_table(table(), {})
    assert {found.level for found in check.findings} == {"ok"}
    assert check.commands("t.csv") == ["kinrank headroom t.csv", "kinrank train t.csv --model model"]


def test_same_texts_stay_together_in_the_study() -> None:
    check = check_table(table(**{"my text": ["red"] * ROWS}), {"text": "my text"})
    assert check.commands("t.csv") == [
        "kinrank headroom t.csv --columns 'text=my text' --group text",
        "kinrank train t.csv --model model --columns 'text=my text' --set group_column=text",
    ]


def test_numbers_of_groups_are_query_columns() -> None:
    customers = {"qid": np.repeat(np.arange(80), 3), "customer": np.repeat(np.arange(40) * 7, 6)}
    columns = {"y": np.tile([0, 1, 2], 80), "bm25": np.random.default_rng(0).normal(size=240)}
    check = check_table(pa.table({**customers, **columns}), {})
    assert "'customer' numbers something that the query belongs to: no feature" in [f.text for f in check.findings]
    assert check.commands("t.csv")[0] == "kinrank headroom t.csv --columns query=customer"


def test_two_columns_of_one_name() -> None:
    check = check_table(pa.table([[1], [2]], names=["qid", "qid"]), {})
    assert [found.text for found in check.findings] == ["two columns are named 'qid': rename one"]
    assert not check.ready


def test_added_documents_are_a_problem() -> None:
    rng = np.random.default_rng(0)
    score = rng.uniform(1.0, 9.0, (50, 20))
    y = score + rng.normal(size=score.shape) > 8
    y[:, 0], score[:, 0] = True, 0.0
    check = check_table(
        pa.table({"qid": np.repeat(np.arange(50), 20), "y": y.ravel().astype(int), "bm25": score.ravel()}), {}
    )
    assert any("give the grade away" in found.text for found in check.findings if found.level == "problem")
