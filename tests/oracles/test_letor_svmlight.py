"""read_letor against scikit-learn's svmlight reader, on every part of every collection."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from kinrank import read_letor


@pytest.mark.data("letor/MQ2007", "letor/MQ2008", "letor/OHSUMED", "letor/OHSUMED-25")
@pytest.mark.parametrize("part", range(1, 6))
@pytest.mark.parametrize("collection", ["MQ2007", "MQ2008", "OHSUMED", "OHSUMED-25"])
def test_values_grades_and_queries_match_scikit_learn(
    data_dir: Path, tmp_path: Path, collection: str, part: int
) -> None:
    packed = data_dir / "letor" / collection / f"S{part}.txt.xz"
    plain = tmp_path / "plain.txt"
    plain.write_bytes(lzma.decompress(packed.read_bytes()))
    queries = read_letor(packed)
    X, y, qid = load_svmlight_file(str(plain), query_id=True, dtype=np.float32)
    np.testing.assert_array_equal(queries.in_caller_order(queries.X), X.toarray())
    np.testing.assert_array_equal(queries.in_caller_order(queries.grades), y)
    np.testing.assert_array_equal(queries.in_caller_order(queries.qid[queries.query_of_row]), qid)
    # scikit-learn drops comments, so the ids are checked against a plain split of the text.
    ids = [line.split("docid = ")[1].split()[0] for line in plain.read_text().splitlines()]
    assert queries.doc_id is not None
    assert queries.in_caller_order(queries.doc_id).tolist() == ids
