from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import KnnRanker, SingleRanker
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores, write_run
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError, ParameterError
from kinrank.measure import AP, NDCG, compare_paired, holm
from kinrank.study._entrants import evaluate_run, fit_and_evaluate, origin_of
from kinrank.study.comparison import compare
from kinrank.study.study import Study

MEASURES = [NDCG @ 10, AP]


@pytest.fixture(scope="module")
def camps() -> tuple[QuerySet, QuerySet]:
    queries = make_two_camps(n_queries=60, n_docs=10, seed=0)
    return queries[:40], queries[40:]


def entrants(camps: tuple[QuerySet, QuerySet], *names: str):
    train, test = camps
    study = Study.split(train, test, measures=MEASURES)
    return [study.enter(name) for name in names]


def test_entrant_has_quality_and_cost(camps):
    knn = entrants(camps, "knn(n_neighbors=5)")[0]
    train, test = camps
    expected = KnnRanker(5).fit(train).predict(test)
    assert knn.scores == pytest.approx(expected)
    assert knn.per_query(NDCG @ 10) == pytest.approx((NDCG @ 10).per_query(expected, test.grades, test.offsets))
    assert knn.fit_seconds is not None
    assert knn.fit_seconds > 0
    assert knn.rank_seconds is not None
    assert knn.rank_seconds > 0
    assert (knn.origin, knn.settings["n_neighbors"], knn.ranker is not None) == ("ranker", 5, True)


def test_differences_are_holm_corrected_together(camps):
    single, knn, wide = entrants(camps, "single", "knn(n_neighbors=5)", "knn(n_neighbors=39)")
    comparison = compare(camps[1], [single, knn, wide])
    assert len(comparison.differences) == 4
    for each in comparison.differences:
        values = comparison[each.name].per_query(each.measure), single.per_query(each.measure)
        assert each.paired == compare_paired(*values)
    corrected = holm([each.paired.p for each in comparison.differences])
    assert [each.p_holm for each in comparison.differences] == pytest.approx(corrected.tolist())
    assert comparison.difference(knn.name, AP).paired.wins == 10


def test_another_baseline(camps):
    three = entrants(camps, "single", "knn(n_neighbors=5)", "knn(n_neighbors=39)")
    comparison = compare(camps[1], three, baseline=three[1].name)
    assert comparison.baseline is three[1]
    assert [(each.name, each.against) for each in comparison.differences if each.measure == AP] == [
        ("single", "knn(n_neighbors=5)"),
        ("knn(n_neighbors=39)", "knn(n_neighbors=5)"),
    ]
    assert comparison.difference("single", AP).paired.mean_difference < 0


def test_saved_model_and_its_run_give_the_same_values(camps, tmp_path: Path):
    train, test = camps
    ranker = SingleRanker("rankrls").fit(train)
    ranker.save(tmp_path / "model")
    write_run(run_from_scores(test, ranker.predict(test)), tmp_path / "single.run")
    model, run = (Study.of_test(test, MEASURES).enter(str(tmp_path / name)) for name in ("model", "single.run"))
    assert (model.origin, model.fit_seconds, run.origin, run.rank_seconds) == ("model", None, "run", None)
    assert model.per_query(AP) == pytest.approx(run.per_query(AP))
    assert run.coverage is not None
    assert run.coverage.unjudged_top == 0


def test_coverage_counts_missing_and_unknown_documents(camps, tmp_path: Path):
    test = camps[1]
    run = run_from_scores(test, np.arange(test.n_rows, dtype=float))
    lines = [f"{q} Q0 {d} 1 {s} t" for q, d, s in zip(run.qid, run.doc_id, run.score, strict=True)][1:]
    new = [f"{test.qid[0]} Q0 new{i} 1 {1e6 + i} t" for i in range(5)]
    (tmp_path / "a.run").write_text("\n".join([*lines, *new, "elsewhere Q0 d 1 1 t"]) + "\n")
    coverage = evaluate_run(str(tmp_path / "a.run"), test, MEASURES).coverage
    assert coverage is not None
    assert (coverage.absent_documents, coverage.unknown_documents, coverage.absent_queries) == (1, 6, 0)
    assert coverage.unjudged_top == pytest.approx(5 / 200)


def test_wrong_input_raises(camps, tmp_path: Path):
    train, test = camps
    with pytest.raises(ParameterError, match="'svmrank' is not a model folder, a run file or a ranker"):
        origin_of("svmrank")
    with pytest.raises(ParameterError, match="'single' must be fitted: pass train="):
        Study.of_test(test, MEASURES).enter("single")
    single = fit_and_evaluate("single", SingleRanker("rankrls"), train, test, MEASURES)
    with pytest.raises(ParameterError, match="at least one entrant, each with a different name"):
        compare(test, [single, single])
    with pytest.raises(ParameterError, match="baseline 'knn' is not an entrant"):
        compare(test, [single], baseline="knn")
    with pytest.raises(ParameterError, match="'knn' was not compared with 'single'"):
        compare(test, [single]).difference("knn", AP)
    (tmp_path / "other.run").write_text("q Q0 d 1 0.5 t\n")
    with pytest.raises(DataError, match="no document of this run is in the data"):
        Study.of_test(test, MEASURES).enter(str(tmp_path / "other.run"))
