from __future__ import annotations

import numpy as np
import pytest

from kinrank.errors import DataError, ParameterError
from kinrank.kin.families import families_of
from kinrank.measure import NDCG, compare_paired
from kinrank.registry import import_extra
from kinrank.study._folds import COLUMN, has_near
from kinrank.study._records import comparison_record, headroom_record
from kinrank.study.experiment import run_experiment
from kinrank.study.headroom import headroom
from kinrank.study.study import Study
from tests.study.worlds import in_families

MEMORY = "lightgbm-memory"


def test_families_are_not_split_and_groups_neither() -> None:
    queries = in_families(np.arange(120) // 3)
    np.testing.assert_array_equal(families_of(queries.query_columns["text"]) // 3, np.arange(120) // 3)
    study = Study.split(queries, folds=4, families=True)
    assert not study.near.any()
    assert study.group == COLUMN
    assert study.by == "family"
    both = Study.split(queries, folds=3, group="shop", families=0.6)
    assert both.by == "shop and family"
    for fold in both.folds:
        assert not set(fold.train.query_columns["shop"]) & set(fold.test.query_columns["shop"])
        assert not has_near(fold.test, fold.train).any()
    # Of the boundaries between shops of ten queries, only each third is one between families of three.
    assert len(np.unique(both.groups)) == 4
    assert Study.split(queries, folds=4).near.mean() > 0.5


def test_rankers_hold_out_whole_families_too() -> None:
    found = run_experiment([MEMORY, "knn(n_neighbors=5)"], in_families(np.arange(60) // 3), folds=2)
    assert all(part.settings["group_column"] == COLUMN for part in found.comparison[MEMORY].parts)
    [note] = found.notes
    assert note.startswith("60 queries are of 20 families of similar texts")


def test_a_family_with_most_queries_gives_even_folds_and_a_note() -> None:
    queries = in_families(np.where(np.arange(100) < 70, 0, np.arange(100)))
    study = Study.split(queries, folds=4, families=True)
    assert sorted(len(fold.test) for fold in study.folds) == [10, 10, 10, 70]
    assert "one group has 70 of 100 queries" in study.notes[1]
    entrants = [study.enter(name) for name in ("single", MEMORY)]
    assert study.compare(entrants).differences[0].paired.n_groups == 31


def test_families_are_used_where_something_remembers() -> None:
    queries = in_families(np.arange(60) // 3)
    by_default = {
        names: run_experiment(list(names), queries, folds=2).comparison.differences[0].paired.n_groups
        for names in (("single", "knn(n_neighbors=5)"), ("single", MEMORY))
    }
    assert list(by_default.values()) == [None, 20]
    split = run_experiment(["single", MEMORY], queries, folds=2, families=False)
    assert split.comparison.differences[0].paired.n_groups is None
    asked = run_experiment(["single", "knn(n_neighbors=5)"], queries, folds=2, families=True)
    assert asked.comparison.differences[0].paired.n_groups == 20
    kin = "kin(local=False, n_members=2, n_repeats=1)"
    assert run_experiment(["single", kin], queries.replace(query_columns={}), folds=2).notes == ()
    with pytest.raises(ParameterError, match="families need the texts of queries"):
        run_experiment(["single"], queries.replace(query_columns={}), folds=2, families=True)
    with pytest.raises(ParameterError, match=r"between 0 and 1, got 1\.5"):
        Study.split(queries, families=1.5)


def test_too_few_families_are_an_error_only_if_asked_for() -> None:
    queries = in_families(np.arange(60) // 30)
    found = run_experiment(["single", MEMORY], queries, folds=4)
    assert found.notes == (
        "60 queries are of 2 families of similar texts (similarity above 0.6), the largest of 30, too few to keep them "
        "together",
    )
    with pytest.raises(DataError, match="60 queries in 2 groups are too few"):
        run_experiment(["single", MEMORY], queries, folds=4, families=True)


def test_gains_are_told_apart_by_near_training_queries() -> None:
    family = np.concatenate([np.arange(60) // 3, np.arange(20), np.arange(100, 130)])
    queries = in_families(family)
    found = run_experiment(["single", MEMORY], queries[60:], train=queries[:60])
    [split] = found.near_and_far
    assert (split.name, split.against, split.n_near, split.n_far) == (MEMORY, "single", 20, 30)
    one, other = (found.comparison[name].per_query(NDCG @ 10) for name in (MEMORY, "single"))
    near = compare_paired(one[:20], other[:20], groups=np.arange(20))
    assert (split.near.mean_difference, split.near.p) == (near.mean_difference, near.p)
    assert split.far.mean_difference == compare_paired(one[20:], other[20:]).mean_difference
    assert split.near.mean_difference > 0.2 > split.far.mean_difference
    assert split.text.startswith(f"{MEMORY} vs. single: +0.")
    assert "for 20 queries with a near training query (similarity above 0.6), " in split.text
    assert split.text.endswith("for 30 queries without one")
    [record] = comparison_record(found.comparison)["near_and_far"]
    assert (record["near"]["queries"], record["far"]["gain"]["p"]) == (20, split.far.p)
    assert run_experiment(["single", "knn(n_neighbors=5)"], queries[60:], train=queries[:60]).near_and_far == ()


def test_headroom_tells_the_gains_of_kin_and_memory_apart() -> None:
    import_extra("lightgbm", "lightgbm")
    queries = in_families(np.arange(80) // 2)
    found = headroom(queries, folds=2)
    assert found.by == "family"
    *of_kin, split = found.answer.near_and_far
    assert {each.name for each in of_kin} == {"kin"}
    assert (split.name, split.n_near, split.n_far) == ("LightGBM with everyone and kin", 0, 80)
    assert split.text.endswith("none of the 80 queries has a near training query (similarity above 0.6)")
    assert found.answer.memory.paired.n_groups == 40
    assert headroom_record(found)["answer"]["near_and_far"][0]["near"] == {"queries": 0, "gain": None}


def test_a_null_world_rejects_in_one_of_twenty_runs_by_family() -> None:
    # Whole families gain or lose together, and none gains on average.
    rng = np.random.default_rng(5)
    study = Study.of_test(in_families(np.arange(300) // 5), families=True)
    assert len(np.unique(study.groups)) == 60
    by_family, by_query = [], []
    for _ in range(1000):
        change = np.repeat(rng.normal(0, 0.1, 60), 5) + rng.normal(0, 0.05, 300)
        by_family.append(compare_paired(change, np.zeros(300), groups=study.groups).p <= 0.05)
        by_query.append(compare_paired(change, np.zeros(300)).p <= 0.05)
    assert 0.03 < np.mean(by_family) < 0.07
    assert np.mean(by_query) > 0.25
