from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet, read_letor
from kinrank.errors import DataError, ParameterError
from reproduction.difficulty import LevelMean, difficulty_levels, mean_by_level


def levels_of(counts: list[int], **settings: int) -> list[str]:
    """Return the levels of queries with these numbers of relevant documents and one irrelevant document."""
    y = np.concatenate([[0.0] + [1.0] * count for count in counts])
    found: list[str] = difficulty_levels(y, np.cumsum([0, *(count + 1 for count in counts)]), **settings).tolist()
    return found


def test_default_limits_are_those_of_the_paper() -> None:
    assert levels_of([0, 1, 3, 4, 20, 21]) == ["none", "hard", "hard", "normal", "normal", "easy"]


def test_limits_can_be_set() -> None:
    assert levels_of([0, 1, 2, 3], hard_below=1, easy_above=1) == ["none", "normal", "easy", "easy"]
    assert levels_of([3, 4], hard_below=4, easy_above=3) == ["hard", "easy"]


def test_relevant_from_sets_the_lowest_relevant_grade() -> None:
    assert difficulty_levels([1, 1, 2, 0], [0, 2, 4], relevant_from=2).tolist() == ["none", "hard"]


@given(st.lists(st.tuples(st.sampled_from(["none", "hard", "normal", "easy"]), st.floats(0, 1)), min_size=1))
def test_every_query_is_in_one_level(queries: list[tuple[str, float]]) -> None:
    levels, values = zip(*queries, strict=True)
    table = mean_by_level(values, levels)
    assert sum(level.queries for level in table.values()) == len(queries)
    total = sum(level.queries * level.mean for level in table.values())
    assert total == pytest.approx(sum(values))


def test_level_without_queries_is_omitted() -> None:
    assert mean_by_level([0.5], ["easy"]) == {"easy": LevelMean(1, 0.5)}


def test_excluded_queries_are_counted_but_not_averaged() -> None:
    table = mean_by_level([np.nan, 0.5, np.nan], ["hard", "hard", "none"])
    assert table["hard"] == LevelMean(2, 0.5)
    assert np.isnan(table["none"].mean)


@pytest.mark.parametrize(("hard_below", "easy_above"), [(0, 20), (10, 8)])
def test_crossing_limits_raise(hard_below: int, easy_above: int) -> None:
    with pytest.raises(ParameterError, match="hard_below must be from 1 to easy_above"):
        levels_of([1], hard_below=hard_below, easy_above=easy_above)


def test_wrong_shapes_raise() -> None:
    with pytest.raises(DataError, match=r"one grade per row \(3 by the offsets\)"):
        difficulty_levels([1, 0], [0, 3])
    with pytest.raises(DataError, match="one entry per query"):
        mean_by_level([0.1, 0.2], ["hard"])


@pytest.mark.data("letor/MQ2007", "letor/MQ2008")
@pytest.mark.slow
@pytest.mark.parametrize(("collection", "shares"), [("MQ2007", [17, 47, 21]), ("MQ2008", [38, 31, 2])])
def test_published_shares_count_20_relevant_documents_as_easy(
    data_dir: Path, collection: str, shares: list[int]
) -> None:
    """The paper puts the limit at 20; its shares (truncated to whole percents) imply that 20 itself is easy."""
    parts = [read_letor(data_dir / "letor" / collection / f"S{part}.txt.xz") for part in range(1, 6)]
    queries = QuerySet.concat(parts)
    levels = difficulty_levels(queries.grades, queries.offsets, easy_above=19)
    assert [int(100 * np.mean(levels == level)) for level in ("hard", "normal", "easy")] == shares
