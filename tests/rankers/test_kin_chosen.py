"""What people chose for a query, next to what a `KinRanker` predicts for it; and the ranker that it starts from."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from kinrank import KinRanker, QuerySet, SingleRanker, load
from kinrank.cli.app import app
from kinrank.errors import EncoderError, ParameterError, StoreError
from kinrank.folder import write
from kinrank.measure import NDCG
from kinrank.memory.evidence import Evidence, Totals
from kinrank.memory.rate import Calibration, Posterior, standing
from kinrank.rankers.base import from_record
from kinrank.rankers.kin._chosen import ChosenPart, WithChoices, _HeldOutScores
from kinrank.store import VersionStore, read_model, read_model_and_examples

QUICK = {
    "memory": False,
    "local": False,
    "settings": {"n_members": 2, "n_repeats": 1},
    "trees": "lambdamart(n_trees=10)",
}
RATES = np.array([0.1, 0.35, 0.7])  # of choices per look, by grade


def judged(n_queries: int = 120, seed: int = 0) -> QuerySet:
    """Return queries whose features say something about their grades, but not all."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((10 * n_queries, 3))
    hidden = rng.standard_normal(len(X))
    y = np.digitize(X @ [1.0, -0.5, 0.0] + hidden, [0.5, 1.8])
    qid = np.repeat([f"query {i}" for i in range(n_queries)], 10)
    documents = np.tile([f"d{i}" for i in range(10)], n_queries)
    return QuerySet.from_arrays(
        X, y, qid=qid, doc_id=documents, query_columns={"text": [f"Query {i}" for i in range(n_queries)]}
    )


def watched(queries: QuerySet, looks: float = 20.0, n_days: int = 10, seed: int = 0) -> Evidence:
    """Return the evidence of people who look at every document equally often and choose by its grade."""
    rng = np.random.default_rng(seed)
    shape = n_days, queries.n_rows
    seen = rng.poisson(looks / n_days, shape)
    chosen = rng.binomial(seen, RATES[queries.grades.astype(int)])
    query = np.tile(queries.qid[queries.query_of_row], n_days)
    days = np.repeat(np.arange(n_days), queries.n_rows)
    return Evidence.from_cells(query, np.tile(queries.doc_id, n_days), seen.ravel(), chosen.ravel(), days)


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    return judged()


@pytest.fixture(scope="module")
def evidence(queries: QuerySet) -> Evidence:
    return watched(queries[:80])


@pytest.fixture(scope="module")
def plain(queries: QuerySet) -> KinRanker:
    return KinRanker(**QUICK).fit(queries[:80])


@pytest.fixture(scope="module")
def fitted(queries: QuerySet, evidence: Evidence) -> KinRanker:
    return KinRanker(evidence=evidence, **QUICK).fit(queries[:80])


def order_of(ranker: KinRanker, query: QuerySet) -> list[int]:
    return np.argsort(-ranker.predict(query), kind="stable").tolist()


def test_choices_rank_better_than_the_model_and_than_themselves(
    fitted: KinRanker, plain: KinRanker, queries: QuerySet, evidence: Evidence
):
    known = queries[:80]
    found = evidence.totals(known)
    by_choices = (NDCG @ 10).mean((found.choices + 0.3) / (found.looks + 1), known.grades, known.offsets)
    assert fitted.score(known) > max(by_choices, plain.score(known)) + 0.003


def test_queries_without_evidence_keep_every_bit(fitted: KinRanker, plain: KinRanker, queries: QuerySet):
    new = queries[80:]
    assert np.array_equal(fitted.predict(new), plain.predict(new))
    assert np.array_equal(fitted.predict(queries)[queries.offsets[80] :], plain.predict(new))
    nameless = queries.replace(doc_id=None)
    assert np.array_equal(fitted.predict(nameless), plain.predict(nameless))


def test_posterior_is_the_formula():
    own = Totals(np.array([0.0, 40.0, 0.1]), np.array([0.0, 31.0, 1.0]))
    p = np.array([0.2, 0.2, 0.2])
    found = Posterior(strength=5.0, exponent=0.0).mean(p, own)
    assert found.tolist() == pytest.approx([0.2, (31 + 5 * 0.2) / 45, (1 + 5 * 0.2) / 6])  # who chose has looked
    weaker = Posterior(strength=5.0, exponent=1.0, rate=0.1).mean(p, own)
    assert weaker[1] == pytest.approx((31 + 2.5 * 0.2) / 42.5)
    unseen = Posterior(strength=5.0, exponent=0.0, unseen=0.5).mean(p, own)
    assert unseen[:2].tolist() == pytest.approx([0.1, found[1]])
    assert Posterior.from_array(Posterior(half_life=3.0).to_array()) == Posterior(half_life=3.0)
    assert Posterior.from_array(Posterior().to_array()) == Posterior()


def test_a_prediction_counts_as_40_looks_at_most():
    own, p = Totals(np.array([10.0, 10.0]), np.array([5.0, 5.0])), np.array([1e-6, 0.02])
    found = Posterior(strength=5.0, exponent=1.0, rate=0.3).mean(p, own)  # 5 * .3 / p is 1.5 million, and 75
    assert found.tolist() == pytest.approx([(5 + 40e-6) / 50, (5 + 40 * 0.02) / 50])


def test_a_model_has_no_share_where_people_judged(plain: KinRanker, queries: QuerySet):
    ranker = plain.copy()
    asked = queries[80]
    ranker.add(asked)
    chosen = ranker.chosen_
    assert chosen is not None
    scores = plain.predict(asked)
    p = chosen.calibration.predict(scores, asked.offsets)
    np.testing.assert_allclose(chosen.scores(asked, scores), chosen.posterior.mean(p, chosen.totals(asked)), rtol=1e-9)


def test_draws_vary_as_the_looks_allow(fitted: KinRanker, queries: QuerySet):
    query = queries[:1]
    expected, drawn = fitted.draw(query, 7)
    assert np.array_equal(drawn, fitted.draw(query, 7)[1])
    assert np.array_equal(expected, fitted.predict(query))
    many = np.array([fitted.draw(query, seed)[1] for seed in range(500)])
    assert np.allclose(many.mean(axis=0), expected, atol=0.1)
    p = np.full(3, 0.3)
    own = Totals(np.array([0.0, 100.0, 10_000.0]), np.array([0.0, 30.0, 3_000.0]))
    rates = np.array([Posterior(5.0, 0.0).draw(p, own, np.random.default_rng(seed)) for seed in range(2000)])
    assert np.allclose(rates.std(axis=0), np.sqrt(0.3 * 0.7 / (own.looks + 5 + 1)), rtol=0.1)


def test_calibration_recovers_rates_and_keeps_the_order():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(40_000)
    offsets = np.arange(0, 40_001, 20)
    rate = 0.05 + 0.6 / (1 + np.exp(-2 * scores))
    looks = rng.poisson(3.0, len(scores)).astype(float)
    choices = rng.binomial(looks.astype(int), rate).astype(float)
    calibration = Calibration().fit(scores, offsets, Totals(looks, choices))
    p = calibration.predict(scores, offsets)
    assert np.abs(p - rate).mean() < 0.03
    for start in range(0, 200, 20):
        rows = slice(start, start + 20)
        assert np.array_equal(np.argsort(p[rows]), np.argsort(scores[rows]))
    assert len(np.unique(calibration.predict(np.arange(1e3, 1e3 + 20), np.array([0, 20])))) == 20
    again = Calibration().set_state(calibration.get_state())
    assert np.array_equal(again.predict(scores, offsets), p)


def test_standing_of_equal_scores_is_0():
    assert standing(np.array([1.0, 1.0, 0.0, 2.0]), np.array([0, 2, 4])).tolist() == [0, 0, -1, 1]
    assert standing(np.full(3, 0.1), np.array([0, 3])).tolist() == [0, 0, 0]  # their sum is rounded


@pytest.mark.parametrize("size", [2, 7, 20, 129, 300])
def test_standing_is_that_of_numpy(size: int):
    scores, offsets = np.random.default_rng(size).standard_normal(2 * size), np.array([0, size, 2 * size])
    centered = scores - np.repeat(np.add.reduceat(scores, offsets[:-1]) / size, size)
    spread = np.sqrt(np.add.reduceat(centered**2, offsets[:-1]) / size)
    np.testing.assert_allclose(standing(scores, offsets), centered / np.repeat(spread, size), rtol=1e-12, atol=1e-12)


def test_one_choice_far_down_does_not_jump_to_the_top(plain: KinRanker, queries: QuerySet):
    query = queries[90]
    order = order_of(plain, query)
    last = query.doc_id[order[-1]]
    once = plain.with_recent(Evidence.from_cells(["query 90"], [last], [0.1], [1.0]))
    assert order_of(once, query).index(order[-1]) > 0
    often = plain.with_recent(Evidence.from_cells(["query 90"], [last], [200.0], [200.0]))
    assert order_of(often, query)[0] == order[-1]


def test_old_evidence_counts_less_if_tastes_change(queries: QuerySet):
    known = queries[:80]
    early, late = watched(known.replace(y=2 - known.grades), 200, 20, 1), watched(known, 200, 20, 2)
    state = {name: values.copy() for name, values in late.get_state().items()}
    state["day"] += 20
    changed = KinRanker(evidence=early.merged(Evidence(state)), **QUICK).fit(known)
    stable = KinRanker(evidence=watched(known, 400, 40, 3), **QUICK).fit(known)
    assert stable.chosen_ is not None
    assert stable.chosen_.posterior.half_life is None
    assert any("what people chose halves in" in line for line in changed.remarks())


def test_clicks_that_a_model_remembers_are_not_counted_twice(queries: QuerySet):
    known = queries[:80]
    evidence = watched(known)
    rng = np.random.default_rng(3)
    seen = evidence.totals(known)
    by_heart = 20.0 * seen.choices / (seen.looks + 1) + 0.01 * rng.standard_normal(known.n_rows)
    blind = rng.standard_normal(known.n_rows)
    remembers = ChosenPart.of(known, by_heart, blind, evidence, from_clicks=True)
    forgets = ChosenPart.of(known, blind, blind, evidence, from_clicks=True)
    assert remembers is not None
    assert forgets is not None
    assert (remembers.inside, forgets.inside) == (0.0, 1.0)
    judged = ChosenPart.of(known, by_heart, blind, evidence, from_clicks=False)
    assert judged is not None
    assert judged.inside == 1.0


def test_held_out_scores_are_those_of_query_and_document(queries: QuerySet):
    known, scores = queries[:3], np.arange(30.0)
    kept = _HeldOutScores.of(known, scores)
    part = ChosenPart(
        Calibration().fit(scores, known.offsets, Totals(np.ones(30), scores / 30)),
        Posterior(),
        kept,
        0.5,
        2.0,
        None,
        Evidence.from_cells(["query 1"], ["d3"], [10.0], [1.0]),
    )
    shuffled = known.take_rows(np.arange(30)[::-1])
    assert np.array_equal(part.scores(shuffled[1], np.zeros(10)), part.scores(known[1], np.zeros(10))[::-1])
    assert not part.scores(known[0], np.zeros(10)).any()


def test_evidence_in_memory_is_saved_with_the_model(fitted: KinRanker, queries: QuerySet, tmp_path: Path):
    fitted.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert np.array_equal(twin.predict(queries), fitted.predict(queries))
    twin.save(tmp_path / "again")
    assert np.array_equal(load(tmp_path / "again").predict(queries), fitted.predict(queries))


def test_a_folder_of_evidence_is_opened_again(evidence: Evidence, queries: QuerySet, tmp_path: Path):
    evidence.save(tmp_path / "evidence")
    ranker = KinRanker(evidence=tmp_path / "evidence", **QUICK).fit(queries[:80])
    ranker.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("chosen.evidence*"))
    assert np.array_equal(load(tmp_path / "model").predict(queries), ranker.predict(queries))
    watched(queries[80:], 100).save_merged(evidence, tmp_path / "evidence")  # last night's log
    assert load(tmp_path / "model").score(queries[80:]) > ranker.score(queries[80:]) + 0.02
    (tmp_path / "evidence").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match=r"model: its evidence is not at .*/evidence: copy the folder .*--publish"):
        load(tmp_path / "model")


def test_a_model_finds_its_evidence_from_every_folder(
    evidence: Evidence, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "work" / "models").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    evidence.save("evidence")
    ranker = KinRanker(evidence="evidence", **QUICK).fit(queries[:80])
    ranker.save("models/choices")
    expected = ranker.predict(queries)
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(load("work/models/choices").predict(queries), expected)
    Path("link").symlink_to("work/models/choices")
    assert np.array_equal(load("link").predict(queries), expected)
    Path("work").rename("moved")  # both together
    assert np.array_equal(load("moved/models/choices").predict(queries), expected)


def test_a_path_as_it_was_typed_is_still_found(
    evidence: Evidence, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    evidence.save("evidence")
    KinRanker(evidence="evidence", **QUICK).fit(queries[:80]).save("deep/models/choices")
    record = read_model("deep/models/choices")
    assert record.params["evidence"] == "../../../evidence"
    earlier = from_record(replace(record, params={**record.params, "evidence": "evidence"}))
    assert earlier.chosen_.evidence.n_cells == evidence.n_cells


def test_a_published_model_has_its_evidence_inside(
    evidence: Evidence, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    meta = {"examination": {"model": "pbm", "fits": True, "ranks": [1, 2], "slope": [1.0, 0.5], "offset": [0.0, 0.0]}}
    Evidence(evidence.get_state(), meta).save("evidence")
    ranker = KinRanker(evidence="evidence", **QUICK).fit(queries[:80])
    ranker.save("model", examples=queries[:3])
    with pytest.raises(
        StoreError, match=r"model has its evidence in another folder, .*kinrank admin models ADDRESS --publish"
    ):
        VersionStore("models").publish("model")
    done = CliRunner().invoke(app, ["admin", "models", "models", "--publish", "model"])
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(app, ["admin", "models", "models", "--publish", "model"])
    assert (done.stdout, again.stdout) == ("1\n", "1\n"), "the same model is not uploaded again"
    copy = VersionStore("models").pull(VersionStore("models").find("1").name, "cache")
    Path("evidence").rename("moved")
    published = load(copy)
    assert np.array_equal(published.predict(queries), ranker.predict(queries))
    assert published.chosen_.evidence.meta["examination"] == meta["examination"], "a service counts by it"
    assert published.chosen_.evidence.days == evidence.days
    assert read_model_and_examples(copy)[1] is not None
    refused = CliRunner().invoke(app, ["admin", "models", "models", "--publish", "model"])
    assert refused.exit_code != 0
    assert "model: its evidence is not at" in " ".join(refused.output.split())


def test_judgments_are_obeyed_at_once(plain: KinRanker, queries: QuerySet, tmp_path: Path):
    ranker = plain.copy()
    for position in range(80, 84):
        asked = queries[position]
        order = order_of(ranker, asked)
        grades = np.full(asked.n_rows, np.nan, dtype=np.float32)
        grades[order[6]], grades[order[0]] = 2.0, 0.0
        ranker.add(asked.replace(y=grades))
        after = order_of(ranker, asked)
        assert after[0] == order[6]
        assert after.index(order[0]) >= 7
    ranker.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(queries), ranker.predict(queries))
    ranker.remove(queries.qid[80:84])
    assert np.allclose(ranker.predict(queries), plain.predict(queries))


def test_explain_counts_choices_and_names_the_rank_without(fitted: KinRanker, plain: KinRanker, queries: QuerySet):
    [explained] = fitted.explain(queries[:1])
    found = watched(queries[:80]).totals(queries[:1])
    order = order_of(fitted, queries[:1])
    assert explained.rank[order[0]] == 1
    assert explained.rank_without[order[0]] == order_of(plain, queries[:1]).index(order[0]) + 1
    line = f"1st: d{order[0]}, chosen {found.choices[order[0]]:.0f} times in {found.looks[order[0]]:.0f} looks"
    assert line in str(explained)
    [unknown] = fitted.explain(queries[80])
    assert "chosen" not in str(unknown)


def test_a_fitted_ranker_is_calibrated_on_queries_that_it_has_not_seen(queries: QuerySet, evidence: Evidence):
    ranker = SingleRanker().fit(queries[:40])
    both, unseen = (WithChoices(ranker, evidence).fit(part).predict(queries) for part in (queries[:80], queries[40:80]))
    assert np.array_equal(both, unseen)
    of_all = SingleRanker().fit(queries[:80])
    assert np.isfinite(WithChoices(of_all, evidence).fit(queries).predict(queries)).all()  # people chose for no other


def chosen_with(folder: Evidence | None, recent: Evidence | None, half_life: float | None) -> ChosenPart:
    nothing = _HeldOutScores(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float32))
    return ChosenPart(Calibration(), Posterior(half_life=half_life), nothing, 1.0, 1.0, folder, recent)


def test_the_day_at_which_live_evidence_takes_over_counts_once():
    asked = QuerySet.from_arrays([[1.0]], qid=[1], doc_id=["d7"], query_columns={"text": ["alien"]})

    def days(*numbers: int) -> Evidence:
        one = np.ones(len(numbers))
        return Evidence.from_cells(["alien"] * len(numbers), ["d7"] * len(numbers), one, 0 * one, numbers)

    assert chosen_with(days(100, 101), days(100, 101, 102), None).totals(asked).looks.tolist() == [3.0]


def test_evidence_of_a_day_to_come_neither_counts_nor_turns_off_live_evidence(tmp_path: Path):
    asked = QuerySet.from_arrays([[1.0]], qid=[1], doc_id=["d7"], query_columns={"text": ["alien"]})
    today = int(time.time() // 86_400)
    for wrong in (2_932_896, today + 2):  # the last day of the year 9999
        folder = Evidence.from_cells(["alien"] * 2, ["d7"] * 2, [4.0, 9.0], [0.0, 0.0], [today - 1, wrong])
        arrays = folder.get_state()
        write(tmp_path / "evidence", "evidence", {"days": [today - 1, wrong]}, arrays)  # as written without a check
        folder = Evidence.open(tmp_path / "evidence")
        recent = Evidence.from_cells(["alien"], ["d7"], [2.0], [0.0], [today])
        assert folder.days == (today - 1, today - 1)
        assert chosen_with(folder, recent, 1.0).totals(asked).looks.tolist() == [4.0]  # half of four, and two of today
        assert folder.merged(recent).days == (today - 1, today)


# --- the ranker to start from -----------------------------------------------------------------------------------------


def test_one_row_dated_tomorrow_mutes_no_live_evidence(plain: KinRanker, queries: QuerySet):
    today = int(time.time() // 86_400)
    query, documents = queries[:1], queries[:1].doc_id
    assert documents is not None
    names = np.repeat(query.qid, 3)
    folder = Evidence.from_cells(
        names, documents[[0, 0, 1]], [50.0, 1.0, 50.0], [5.0, 0.0, 5.0], [today - 1, today + 1, 3]
    )
    live = Evidence.from_cells(names[:1], documents[[7]], [200.0], [180.0], [today])
    ranker = KinRanker(evidence=folder, **QUICK).fit(queries[:80]).with_recent(live)
    assert ranker.chosen_ is not None
    totals = ranker.chosen_.totals(query)
    assert totals.looks[7] == 200.0  # live
    assert totals.looks[0] == 50.0  # without the row of a day that live evidence has
    assert order_of(ranker, query)[0] == 7


def test_a_day_that_is_not_over_in_the_folder_counts_as_live_evidence_has_it(queries: QuerySet):
    today = int(time.time() // 86_400)
    query, documents = queries[:1], queries[:1].doc_id
    assert documents is not None
    names, days = np.repeat(query.qid, 2), [today - 1, today]
    folder = Evidence.from_cells(names, documents[[0, 0]], [50.0, 20.0], [5.0, 2.0], days)
    live = Evidence.from_cells(names, documents[[0, 0]], [10.0, 45.0], [1.0, 4.0], days)
    ranker = KinRanker(evidence=folder, **QUICK).fit(queries[:80]).with_recent(live)
    assert ranker.chosen_ is not None
    assert ranker.chosen_.totals(query).looks[0] == 95.0


def test_base_is_a_feature_and_can_rank_alone(queries: QuerySet):
    known = queries[:80]
    perfect = known.replace(X=np.column_stack([known.grades, known.X[:, 1:]]).astype(np.float32))
    ranker = KinRanker(base="single", **QUICK).fit(perfect)
    assert ranker.record_["base"] > 0.95
    assert ranker.score(perfect) > 0.95
    assert not ranker.capabilities.weights
    assert ranker.feature_importances_.shape == (3,)
    assert "base" in ranker.explain(perfect[:1])[0].feature_names


def test_any_model_can_be_the_base(queries: QuerySet, evidence: Evidence, tmp_path: Path):
    class Linear:
        def predict(self, X: np.ndarray) -> np.ndarray:
            return X @ [1.0, -0.5, 0.0]

    ranker = KinRanker(base=Linear(), evidence=evidence, **QUICK).fit(queries[:80])
    assert ranker.score(queries[:80]) > 0.9
    with pytest.raises(StoreError, match="a base of type Linear cannot be saved"):
        ranker.save(tmp_path / "model")
    with pytest.raises(ParameterError, match="base must be the name of a ranker, a model file or a ranker"):
        KinRanker(base=object(), **QUICK).fit(queries)
    with pytest.raises(ParameterError, match="a base needs all candidates in memory"):
        KinRanker(base="single", settings={"n_cells": 4}).fit(queries)


def test_model_file_is_the_base(queries: QuerySet, tmp_path: Path):
    trees = SingleRanker("lambdamart(n_trees=10, min_rows_in_leaf=5)").fit(queries[80:])
    (tmp_path / "trees.txt").write_text(trees.learner_.text)
    ranker = KinRanker(base=tmp_path / "trees.txt", **QUICK).fit(queries[:80])
    assert np.allclose(ranker.base_.scores(queries), trees.predict(queries))
    ranker.save(tmp_path / "model")
    (tmp_path / "trees.txt").unlink()
    assert np.array_equal(load(tmp_path / "model").predict(queries), ranker.predict(queries))


def test_base_is_cloned_set_and_pickled_as_an_estimator(queries: QuerySet):
    ranker = KinRanker(base=SingleRanker("rankrls"), **QUICK)
    twin = clone(ranker).set_params(base__scale="min_max")
    assert (ranker.base.scale, twin.base.scale) == ("standard", "min_max")
    fitted = twin.fit(queries[:40])
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(queries), fitted.predict(queries))


def test_settings_of_the_base_are_checked_when_a_model_is_loaded(queries: QuerySet, tmp_path: Path):
    KinRanker(base="knn(n_neighbors=7)", **QUICK).fit(queries[:20]).save(tmp_path / "model")
    assert load(tmp_path / "model").base_.ranker.n_neighbors == 7
    record = read_model(tmp_path / "model")
    with pytest.raises(StoreError, match="which is not the name of a ranker"):
        from_record(replace(record, params={**record.params, "base": "knn(encoder=sentence-transformers:evil)"}))
    inner = {**record.params["base"], "params": {"encoder": "sentence-transformers:evil"}}
    with pytest.raises(EncoderError, match="names the encoder 'sentence-transformers:evil'"):
        from_record(replace(record, params={**record.params, "base": inner}))
