from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.data.parquet import read_parquet, write_parquet
from kinrank.engines._logger import read_judgments
from kinrank.errors import DataError

WEIGHTED = QuerySet.from_arrays(
    [[1.0], [2.0], [3.0]], y=[0, 1, 1], qid=["a", "b", "a"], doc_id=["x", "y", "z"], sample_weight=[0.5, 1.0, 2.0]
)


def test_weights_follow_their_rows(tmp_path: Path):
    assert WEIGHTED.row_weights.tolist() == [0.5, 2.0, 1.0]
    assert WEIGHTED[1:].row_weights.tolist() == [1.0]
    assert WEIGHTED[[1, 0]].row_weights.tolist() == [1.0, 0.5, 2.0]
    WEIGHTED.save(tmp_path / "folder")
    write_parquet(WEIGHTED, tmp_path / "rows.parquet")
    for read in (QuerySet.open(tmp_path / "folder"), read_parquet(tmp_path / "rows.parquet")):
        assert read.row_weights.tolist() == [0.5, 2.0, 1.0]
        assert read.feature_names == ("f1",)


def test_sets_with_and_without_weights_are_concatenated():
    other = QuerySet.from_arrays([[4.0]], y=[1], qid=["c"], doc_id=["u"])
    assert QuerySet.concat([WEIGHTED, other]).row_weights.tolist() == [0.5, 2.0, 1.0, 1.0]
    assert QuerySet.concat([other]).sample_weight is None
    assert other.row_weights.tolist() == [1.0]


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_weights_must_be_finite_and_not_negative(value: float):
    with pytest.raises(DataError, match=r"sample_weight\[1\] is .*must be finite and not negative"):
        QuerySet.from_arrays([[1.0], [2.0]], y=[0, 1], qid=[1, 1], sample_weight=[1.0, value])
    with pytest.raises(DataError, match="sample_weight must have one value per row"):
        QuerySet.from_arrays([[1.0], [2.0]], y=[0, 1], qid=[1, 1], sample_weight=[1.0])


def test_judgments_with_weights_and_information(tmp_path: Path):
    file = tmp_path / "judgments.csv"
    file.write_text("qid,query,doc_id,y,sample_weight,info.clicks\n1,alien,d7,2,0.5,10\n1,alien,d9,0,0.25,1\n")
    judged = read_judgments(file)
    assert judged.n_features == 0
    assert judged.row_weights.tolist() == [0.5, 0.25]
    assert list(judged.query_columns) == ["text"]
