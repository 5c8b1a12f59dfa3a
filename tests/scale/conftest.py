"""Judged queries on disk in many small blocks, and the model that one undisturbed process makes of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kinrank import KnnRanker, QuerySet
from kinrank.data.tables import to_table
from kinrank.datasets import make_intents
from kinrank.scale import train

BLOCK_ROWS = 200
SETTINGS = KnnRanker(60, cells=12, reference="reference")


@pytest.fixture(scope="session")
def queries() -> QuerySet:
    made = make_intents(600, 100, n_docs=10, n_features=6, spread=1.0, seed=3)
    return made.replace(doc_id=None, query_columns={})


@pytest.fixture(scope="session")
def judged(queries: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 queries of 10 rows in 3 files; row groups of 93 rows cut queries anywhere."""
    folder = tmp_path_factory.mktemp("judged")
    table = to_table(queries[:600])
    for number in range(3):
        part = table.slice(2000 * number, 2000)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=93, write_page_checksum=True)
    return folder


@pytest.fixture(scope="session")
def undisturbed(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the model."""
    model = tmp_path_factory.mktemp("undisturbed") / "model"
    train(judged, model, SETTINGS, block_rows=BLOCK_ROWS)
    return model_bytes(model)


def model_bytes(model: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(model.iterdir())}
