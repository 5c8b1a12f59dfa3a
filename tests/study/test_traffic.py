"""The rung of choices: earlier choices rank, later traffic weights, and neither sees the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.cli import app
from kinrank.errors import DataError, LeakError
from kinrank.measure import NDCG
from kinrank.memory.evidence import Evidence
from kinrank.registry import import_extra
from kinrank.study._records import answer_record, headroom_record
from kinrank.study._traffic import SplitInTime
from kinrank.study.experiment import run_experiment
from kinrank.study.headroom import headroom
from kinrank.study.study import Study

RATES = np.array([0.05, 0.35, 0.8])  # of choices per look, by grade
FIRST, BORDER = 20_000, 20_016
N_QUERIES, N_DAYS = 120, 20
TOPICS = (
    *("harry potter", "running shoes", "garden chairs", "electric guitar", "winter jacket", "coffee machine"),
    *("mountain bike", "birthday present", "wooden puzzle", "wireless headphones", "school backpack", "yoga mattress"),
)


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    """Return queries of 12 families that want the same documents, which features tell in part."""
    rng = np.random.default_rng(0)
    family = np.arange(N_QUERIES) % 12
    grades = rng.integers(0, 3, (12, 8))[family].ravel()
    return QuerySet.from_arrays(
        np.column_stack([grades + 1.5 * rng.standard_normal(len(grades)), rng.standard_normal(len(grades))]),
        grades,
        qid=np.repeat([f"q{number:03d}" for number in range(N_QUERIES)], 8),
        doc_id=[f"{kind}-{document}" for kind in family for document in range(8)],
        query_columns={
            "text": [f"{TOPICS[kind]} {number}" for number, kind in enumerate(family)],
            "family": family,
            "vector": np.eye(12)[family] + 0.05 * rng.standard_normal((N_QUERIES, 12)),
        },
    )


@pytest.fixture(scope="module")
def cells(queries: QuerySet) -> dict[str, np.ndarray]:
    """Return looks and choices by day; the last 40 queries are asked only in the last four days."""
    rng = np.random.default_rng(1)
    day = np.repeat(FIRST + np.arange(N_DAYS), queries.n_rows)
    query = np.tile(queries.query_of_row, N_DAYS)
    looks = np.where((query >= 80) & (day < BORDER), 0, rng.poisson(2, len(day)))
    choices = rng.binomial(looks, RATES[np.tile(queries.grades.astype(int), N_DAYS)])
    texts = queries.query_columns["text"][query]
    seen = looks > 0
    named = {
        "query": texts,
        "document": np.tile(queries.doc_id, N_DAYS),
        "day": day,
        "looks": looks,
        "choices": choices,
    }
    return {name: values[seen] for name, values in named.items()}


def split(cells: dict[str, np.ndarray], **changed: np.ndarray) -> SplitInTime:
    return SplitInTime.of(Evidence.from_cells(**(cells | changed)))


def scores(queries: QuerySet, evidence: SplitInTime) -> np.ndarray:
    study = Study.split(queries, folds=3, evidence=evidence)
    rungs = study.with_choices({"local": study.enter("knn(n_neighbors=20)")})
    return rungs["choices"].scores


def test_recurring_similar_and_new_queries_are_told_apart(queries: QuerySet, cells: dict[str, np.ndarray]):
    alone = queries.query_columns["family"] == 11  # nothing like it was asked before
    names = queries.query_columns["text"][alone]
    known = ~(np.isin(cells["query"], names) & (cells["day"] < BORDER))
    evidence = split({name: values[known] for name, values in cells.items()})
    assert evidence.day == BORDER
    names = ["single", "knn(n_neighbors=20)"]
    found = run_experiment(names, queries, folds=3, group="family", evidence=evidence).answer
    assert found is not None
    assert found.choices is not None
    recurring, similar, new, everything = found.choices.parts
    assert [part.name for part in found.choices.parts] == ["recurring", "similar", "new", "all"]
    first, last = np.arange(N_QUERIES) < 80, np.arange(N_QUERIES) >= 80
    assert (recurring.n_queries, similar.n_queries) == (np.sum(first & ~alone), np.sum(last & ~alone))
    assert (new.n_queries, everything.n_queries) == (alone.sum(), N_QUERIES)
    late = (cells["day"] >= BORDER) & known
    late_looks = cells["looks"][late]
    of_new = np.isin(cells["query"][late], queries.query_columns["text"][alone])
    assert new.share == pytest.approx(late_looks[of_new].sum() / late_looks.sum())
    assert recurring.share + similar.share + new.share == pytest.approx(1)
    assert found.choices.covered == pytest.approx(1)
    assert recurring.paired.mean_difference > 0.05
    assert recurring.paired.n_groups == 11
    assert recurring.paired.mean_difference == pytest.approx(recurring.mean - recurring.without)
    assert new.mean == new.without
    assert new.paired is None  # one group
    assert found.choices.table[3][3:] == (f"{new.without:.4f}", f"{new.mean:.4f}", "+0.0000", "")
    claim = found.choices.claim
    assert claim.verdict == "gain"
    assert (claim.name, claim.against) == ("choices around knn(n_neighbors=20)", "knn(n_neighbors=20)")
    assert claim.n_claims == 2
    assert "Weighted by the traffic from 2024-10-20 on, choices around knn" in found.text
    assert "Add them: kinrank train --evidence." in found.text
    assert json.loads(json.dumps(answer_record(found)))["choices"]["parts"]["new"]["queries"] == alone.sum()


def test_evidence_of_the_measured_days_ranks_nothing(queries: QuerySet, cells: dict[str, np.ndarray]):
    plain = scores(queries, split(cells))
    late = cells["day"] >= BORDER
    inverted = np.where(late, cells["looks"] - cells["choices"], cells["choices"])
    assert np.array_equal(scores(queries, split(cells, choices=inverted)), plain)
    early = np.where(late, cells["choices"], cells["looks"] - cells["choices"])
    assert not np.array_equal(scores(queries, split(cells, choices=early)), plain)


def test_grades_and_judgments_of_test_queries_rank_nothing(queries: QuerySet, cells: dict[str, np.ndarray]):
    train, test = queries[:60], queries[60:]
    plain = split(cells)
    ranker = Study.split(train, test).enter("knn(n_neighbors=20)").ranker
    before = plain.fit(ranker, train, test).predict(test)
    assert np.array_equal(plain.fit(ranker, train, test.replace(y=2 - test.y)).predict(test), before)
    judged = SplitInTime(plain.evidence.with_judgments(Evidence.of_judgments(test)), plain.day)
    assert np.array_equal(judged.fit(ranker, train, test).predict(test), before)


def test_judgments_of_test_queries_among_the_evidence_of_an_entrant_are_refused(queries: QuerySet, tmp_path: Path):
    Evidence.of_judgments(queries[:80]).save(tmp_path / "known")
    Evidence.of_judgments(queries[80:]).save(tmp_path / "leaked")
    study = Study.split(queries[:80], queries[80:])
    quick = "memory=False, local=False, n_members=2, n_repeats=1, trees=lambdamart(n_trees=5)"
    study.enter(f"kin(evidence={tmp_path / 'known'}, {quick})")
    with pytest.raises(LeakError, match=r"40 of 40 test queries are in this model's training data"):
        study.enter(f"kin(evidence={tmp_path / 'leaked'}, {quick})")


def test_traffic_weights_the_mean(queries: QuerySet, cells: dict[str, np.ndarray]):
    evidence = split(cells)
    study = Study.split(queries, folds=3, evidence=evidence)
    rungs = study.with_choices({"linear": study.enter("single"), "local": study.enter("knn(n_neighbors=20)")})
    found = study.answer(rungs).choices
    values = rungs["choices"].per_query(NDCG @ 10)
    assert found.parts[-1].mean == pytest.approx(np.average(values, weights=evidence.traffic(queries)))
    assert found.today is None
    engine = study.enter_engine(queries.feature_names[1])
    over = study.answer({"engine": engine, **rungs}).choices
    assert over.today.without == pytest.approx(
        np.average(engine.per_query(NDCG @ 10), weights=evidence.traffic(queries))
    )
    assert over.today.mean == found.parts[-1].mean
    assert f"There the engine has {over.today.without:.4f} and choices around knn" in over.text
    late = cells["day"] >= BORDER
    own = cells["query"] == queries.query_columns["text"][3]
    assert evidence.traffic(queries)[3] == cells["looks"][late & own].sum()


def test_headroom_has_the_rung(queries: QuerySet, cells: dict[str, np.ndarray]):
    found = headroom(queries, folds=3, trees=False, evidence=split(cells))
    assert list(found.means)[2] == "choices around a linear model per query"
    assert list(found.answer.means) == ["linear", "local", "choices"]
    record = headroom_record(found)["answer"]["choices"]
    assert record["gain"]["verdict"] == "gain"
    assert record["parts"]["recurring"]["queries"] == 80


def test_the_commands_and_the_page_show_the_table(queries: QuerySet, cells: dict[str, np.ndarray], tmp_path: Path):
    queries[:60].save(tmp_path / "train")
    queries[60:].save(tmp_path / "test")
    Evidence.from_cells(**cells).save(tmp_path / "evidence")
    entrants = tmp_path / "test", "single", "knn(n_neighbors=20)", "--train", tmp_path / "train"
    split = "--evidence", tmp_path / "evidence"
    page = tmp_path / "report.html"
    import_extra("jinja2", "report")
    for command in (["compare", *entrants], ["report", *entrants, "--out", page]):
        done = CliRunner().invoke(app, [str(word) for word in (*command, *split)])
        assert done.exit_code == 0, done.stderr
        [recurring] = [line.split() for line in done.stdout.splitlines() if line.startswith("recurring")]
        assert recurring[1] == "20"
        assert "Weighted by the traffic from 2024-10-20 on" in done.stdout
    assert '<section id="traffic"' in page.read_text()
    assert f'<th scope="row">recurring</th><td>20</td><td>{recurring[2]}</td>' in page.read_text()


def test_saved_models_are_compared_by_traffic(queries: QuerySet, cells: dict[str, np.ndarray], tmp_path: Path):
    queries[60:].save(tmp_path / "test")
    Evidence.from_cells(**cells).save(tmp_path / "evidence")
    SingleRanker().fit(queries[:60]).save(tmp_path / "single")
    KnnRanker(n_neighbors=20).fit(queries[:60]).save(tmp_path / "knn")
    words = ["compare", *(tmp_path / name for name in ("test", "single", "knn")), "--evidence", tmp_path / "evidence"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert (done.exit_code, "Weighted by the traffic from 2024-10-20 on" in done.stdout) == (0, True), done.stderr
    done = CliRunner().invoke(app, [str(word) for word in words if word != tmp_path / "knn"])
    assert (done.exit_code, "--evidence is not used" in done.stderr) == (0, True)
    assert "by what people chose" not in done.stderr


def test_choices_for_test_queries_are_called_out(queries: QuerySet, cells: dict[str, np.ndarray], tmp_path: Path):
    queries[60:].save(tmp_path / "test")
    single = SingleRanker().fit(queries[:60])
    single.save(tmp_path / "single")
    quick = {
        "memory": False,
        "local": False,
        "settings": {"n_members": 2, "n_repeats": 1},
        "trees": "lambdamart(n_trees=5)",
    }
    KinRanker(evidence=Evidence.from_cells(**cells), **quick).fit(queries[:60]).save(tmp_path / "choices")
    words = ["compare", *(tmp_path / name for name in ("test", "single", "choices"))]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    assert "choices ranks 60 of 60 test queries by what people chose for them" in " ".join(done.stderr.split())
    Evidence.from_cells(**cells).save(tmp_path / "evidence")
    queries[:60].save(tmp_path / "train")
    flat = {**quick, **quick["settings"]}
    ranker = (
        "--evidence",
        tmp_path / "evidence",
        *(word for pair in flat.items() if pair[0] != "settings" for word in ("--set", "{}={}".format(*pair))),
    )
    words = ["train", tmp_path / "train", "--model", tmp_path / "model", "--validate", tmp_path / "test", *ranker]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    assert "kin ranks 60 of 60 test queries by what people chose for them" in " ".join(done.stderr.split())


def test_without_days_texts_or_matching_ids_there_is_no_split(queries: QuerySet, cells: dict[str, np.ndarray]):
    with pytest.raises(DataError, match="the evidence has no days"):
        SplitInTime.of(Evidence.of_judgments(queries))
    with pytest.raises(DataError, match="the evidence has one day, 2024-10-04"):
        SplitInTime.of(Evidence.from_cells(["a"], ["d"], [1], [1], day=[20000]))
    ranker = Study.split(queries[:60], queries[60:]).enter("knn(n_neighbors=20)").ranker
    renamed = queries.replace(doc_id=np.arange(queries.n_rows).astype(str))
    with pytest.raises(DataError, match="nobody chose a candidate of these queries before 2024-10-20"):
        split(cells).fit(ranker, renamed[:60], renamed[60:])
    with pytest.raises(DataError, match="no texts or no document ids"):
        split(cells).fit(ranker, None, queries.replace(query_columns={}))
