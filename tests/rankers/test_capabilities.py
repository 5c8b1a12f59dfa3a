from __future__ import annotations

from pathlib import Path

from kinrank import CellRanker, KnnRanker, SingleRanker
from kinrank.rankers.capabilities import (
    Capabilities,
    can_adapt,
    can_explain,
    capabilities_of,
    capability_table,
    has_weights,
)
from kinrank.rankers.registry import RANKERS

PAGE = Path(__file__).parents[2] / "docs" / "rankers.md"


def test_docs_page_shows_the_current_table():
    table = f"```text\n{capability_table()}\n```"
    assert table in PAGE.read_text(), f"paste this into {PAGE.name}:\n{table}"


def test_table_has_a_column_per_ranker_and_a_row_per_capability():
    head, *rows = (line.split() for line in capability_table().partition("\n\n")[0].splitlines())
    assert head == ["capability", *RANKERS]
    assert [row[0] for row in rows] == list(Capabilities.meanings())
    knn = {row[0]: row[head.index("knn")] == "yes" for row in rows}
    assert knn == dict(KnnRanker().capabilities)


def test_capabilities_depend_on_settings():
    assert has_weights(SingleRanker("rankrls"))
    assert not has_weights(SingleRanker("lambdamart"))
    assert KnnRanker().capabilities.adds
    assert not CellRanker().capabilities.replaces


def test_models_of_other_libraries_declare_nothing():
    assert capabilities_of(object()) == Capabilities()
    assert not can_explain(object())
    assert not can_adapt(object())
