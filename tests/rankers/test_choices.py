"""`ChoiceRanker`: evidence of what people chose, on top of a ranker."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank import ChoiceRanker, QuerySet, SingleRanker, load
from kinrank.cli.app import app
from kinrank.data.hashes import query_keys
from kinrank.errors import DataError, EncoderError, ParameterError, StoreError
from kinrank.folder import write
from kinrank.measure import NDCG
from kinrank.memory.evidence import Evidence, Totals
from kinrank.rankers.base import from_record
from kinrank.rankers.choices.calibration import Calibration, standing
from kinrank.rankers.choices.live import LiveJudgments, evidence_parts, total_evidence
from kinrank.rankers.choices.posterior import Posterior
from kinrank.store import VersionStore, read_model, read_model_and_examples

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
def fitted(queries: QuerySet, evidence: Evidence) -> ChoiceRanker:
    return ChoiceRanker("single", evidence).fit(queries[:80])


def test_choices_rank_better_than_the_ranker_and_than_themselves(fitted: ChoiceRanker, queries: QuerySet):
    known = queries[:80]
    found = watched(known).totals(known)
    plain = (found.choices + 0.3) / (found.looks + 1)
    by_choices = (NDCG @ 10).mean(plain, known.grades, known.offsets)
    assert fitted.score(known) > max(by_choices, fitted.ranker_.score(known)) + 0.005


def test_queries_without_evidence_keep_every_bit(fitted: ChoiceRanker, queries: QuerySet):
    new = queries[80:]
    assert np.array_equal(fitted.predict(new), fitted.ranker_.predict(new))
    both = fitted.predict(queries)
    assert np.array_equal(both[new.offsets[0] + queries.offsets[80] :], fitted.ranker_.predict(new))
    for nameless in (queries.replace(doc_id=None), queries.replace(query_columns={})):
        assert np.array_equal(fitted.predict(nameless), fitted.ranker_.predict(nameless))
    plain = SingleRanker().fit(queries[:80])
    assert np.array_equal(fitted.predict(new), plain.predict(new))


def test_posterior_is_the_formula():
    own, kin = Totals(np.array([0.0, 40.0]), np.array([0.0, 31.0])), Totals(np.array([2.0, 0.0]), np.array([1.0, 0.0]))
    p = np.array([0.2, 0.2])
    found = Posterior(strength=5.0, exponent=0.0, discount=0.5).mean(p, own, kin)
    assert found.tolist() == pytest.approx([0.2 + 0.5 / (5 + 1), (31 + 5 * 0.2) / 45])
    weaker = Posterior(strength=5.0, exponent=1.0, rate=0.1).mean(p, own)
    assert weaker[1] == pytest.approx((31 + 2.5 * 0.2) / 42.5)
    assert Posterior.from_array(Posterior(half_life=3.0).to_array()) == Posterior(half_life=3.0)
    assert Posterior.from_array(Posterior().to_array()) == Posterior()


def test_draws_have_the_mean_and_vary_as_the_looks_allow(fitted: ChoiceRanker, queries: QuerySet):
    query = queries[:1]
    drawn = np.array([fitted.draw(query, seed)[1] for seed in range(2000)])
    assert np.array_equal(drawn[7], fitted.draw(query, 7)[1])
    assert np.allclose(drawn.mean(axis=0), fitted.predict(query), atol=0.02)
    p = np.full(3, 0.3)
    own = Totals(np.array([0.0, 100.0, 10_000.0]), np.array([0.0, 30.0, 3_000.0]))
    many = np.array([Posterior(5.0, 0.0).draw(p, own, None, np.random.default_rng(seed)) for seed in range(2000)])
    assert np.allclose(many.std(axis=0), np.sqrt(0.3 * 0.7 / (own.looks + 5 + 1)), rtol=0.1)


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


def test_reliable_rankers_count_more(queries: QuerySet):
    known = queries[:80]
    perfect = known.replace(X=np.column_stack([known.grades, known.X[:, 1:]]).astype(np.float32))
    noise = known.replace(X=np.random.default_rng(1).standard_normal(known.X.shape).astype(np.float32))
    strengths = [ChoiceRanker("single", watched(known, 60)).fit(part).posterior_.strength for part in (noise, perfect)]
    assert strengths[0] < strengths[1]


def test_old_evidence_counts_less_if_tastes_change(queries: QuerySet):
    known = queries[:80]
    early, late = watched(known.replace(y=2 - known.grades), 200, 20, 1), watched(known, 200, 20, 2)
    state = {name: values.copy() for name, values in late.get_state().items()}
    state["day"] += 20
    stable = watched(known, 400, 40, 3)
    changed = ChoiceRanker("single", early.merged(Evidence(state))).fit(known)
    assert ChoiceRanker("single", stable).fit(known).posterior_.half_life is None
    assert changed.posterior_.half_life is not None
    assert "evidence halves in" in changed.remarks()[-2]


def test_a_fitted_model_is_wrapped_as_it_is(queries: QuerySet, evidence: Evidence):
    class Linear:
        def predict(self, X: np.ndarray) -> np.ndarray:
            return X @ [1.0, -0.5, 0.0]

    ranker = ChoiceRanker(Linear(), evidence, prefit=True).fit(queries[:80])
    assert ranker.score(queries[:80]) > 0.9
    assert np.array_equal(ranker.predict(queries[80:]), Linear().predict(queries[80:].X))
    with pytest.raises(StoreError, match="a model of type Linear cannot be saved"):
        ranker.get_state()
    inner = SingleRanker().fit(queries[80:])
    around = ChoiceRanker(inner, evidence, prefit=True).fit(queries[:80])
    assert around.ranker_ is inner
    assert np.array_equal(around.copy().predict(queries), around.predict(queries))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_folds": 1}, "n_folds must be a whole number from 2, got 1"),
        ({"judgment_looks": 0}, "judgment_looks must be above 0, got 0"),
        ({"prefit": True}, "prefit=True needs a fitted ranker, got the name 'single'"),
        ({"ranker": object()}, "ranker must be a name or a Ranker, got object"),
    ],
)
def test_wrong_settings_raise(settings: dict, message: str, queries: QuerySet):
    with pytest.raises(ParameterError, match=message):
        ChoiceRanker(**{"ranker": "single", **settings}).fit(queries)


def test_evidence_in_memory_is_saved_with_the_model(fitted: ChoiceRanker, queries: QuerySet, tmp_path: Path):
    fitted.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert np.array_equal(twin.predict(queries), fitted.predict(queries))
    twin.save(tmp_path / "again")
    assert np.array_equal(load(tmp_path / "again").predict(queries), fitted.predict(queries))


def test_settings_of_the_wrapped_ranker_are_checked_when_a_model_is_loaded(queries: QuerySet, tmp_path: Path):
    ChoiceRanker("knn(n_neighbors=7)").fit(queries[:20]).save(tmp_path / "model")
    assert load(tmp_path / "model").ranker_.n_neighbors == 7
    record = read_model(tmp_path / "model")
    text = {**record.params, "ranker": "knn(encoder=sentence-transformers:evil)"}
    with pytest.raises(StoreError, match="which is not the name of a ranker"):
        from_record(replace(record, params=text))
    inner = {**record.params["ranker"], "params": {"encoder": "sentence-transformers:evil"}}
    with pytest.raises(EncoderError, match="names the encoder 'sentence-transformers:evil'"):
        from_record(replace(record, params={**record.params, "ranker": inner}))


def test_a_folder_of_evidence_is_opened_again(evidence: Evidence, queries: QuerySet, tmp_path: Path):
    evidence.save(tmp_path / "evidence")
    ranker = ChoiceRanker("single", tmp_path / "evidence").fit(queries[:80])
    ranker.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("evidence*"))
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
    ranker = ChoiceRanker("single", "evidence").fit(queries[:80])
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
    ChoiceRanker("single", "evidence").fit(queries[:80]).save("deep/models/choices")
    record = read_model("deep/models/choices")
    assert record.params["evidence"] == "../../../evidence"
    earlier = from_record(replace(record, params={**record.params, "evidence": "evidence"}))
    assert earlier.evidence_.n_cells == evidence.n_cells


def test_a_published_model_has_its_evidence_inside(
    evidence: Evidence, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    meta = {"examination": {"model": "pbm", "fits": True, "ranks": [1, 2], "slope": [1.0, 0.5], "offset": [0.0, 0.0]}}
    Evidence(evidence.get_state(), meta).save("evidence")
    ranker = ChoiceRanker("single", "evidence").fit(queries[:80])
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
    assert published.evidence_.meta["examination"] == meta["examination"], "a service counts by it"
    assert published.evidence_.days == evidence.days
    assert read_model_and_examples(copy)[1] is not None
    refused = CliRunner().invoke(app, ["admin", "models", "models", "--publish", "model"])
    assert refused.exit_code != 0
    assert "model: its evidence is not at" in " ".join(refused.output.split())


@pytest.mark.parametrize("with_evidence", [True, False])
def test_judgments_are_obeyed_at_once_and_nothing_else_moves(
    with_evidence: bool, queries: QuerySet, evidence: Evidence
):
    ranker = ChoiceRanker("single", evidence if with_evidence else None).fit(queries[:80])
    others = queries[:70]
    before = ranker.predict(others)
    for position in (*range(70, 75), *range(80, 85)):  # five with evidence, five without
        asked = queries[position]
        order = np.argsort(-ranker.predict(asked), kind="stable")
        grades = np.full(asked.n_rows, np.nan, dtype=np.float32)
        grades[order[6]], grades[order[0]] = 2.0, 0.0
        ranker.remove(asked.qid[ranker.has_judged(asked.qid)]).add(asked.replace(y=grades))
        after = np.argsort(-ranker.predict(asked), kind="stable")
        assert after[0] == order[6]
        assert np.flatnonzero(after == order[0])[0] >= 7
        ungraded = [document for document in after if document not in (order[0], order[6])]
        assert ungraded == [document for document in order if document not in (order[0], order[6])]
        assert np.array_equal(ranker.predict(others), before)
        ranker.remove(asked.qid)
        assert np.array_equal(np.argsort(-ranker.predict(asked), kind="stable"), order)


def test_judgments_are_saved_and_cannot_be_added_twice(queries: QuerySet, tmp_path: Path):
    ranker = ChoiceRanker("single").fit(queries[:80]).add(queries[80:82])
    assert ranker.qid_[80:].tolist() == ["query 80", "query 81"]
    assert (ranker.n_judged_, ranker.n_unseen_) == (82, 2)
    ranker.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert np.array_equal(twin.predict(queries), ranker.predict(queries))
    with pytest.raises(DataError, match="query 'query 80' is judged already"):
        twin.add(queries[80])
    with pytest.raises(DataError, match="query 'query 99' is not a judged query"):
        twin.remove(["query 99"])
    with pytest.raises(DataError, match="these queries have no grade"):
        twin.add(queries[90].replace(y=None))
    nameless = queries[91].replace(query_columns={})
    assert np.array_equal(twin.add(nameless).predict(queries), ranker.predict(queries))


def test_explain_counts_choices_and_names_the_rank_without(fitted: ChoiceRanker, queries: QuerySet):
    [explained] = fitted.explain(queries[:1])
    found = watched(queries[:80]).totals(queries[:1])
    first = int(np.argmax(fitted.predict(queries[:1])))
    assert explained.rank[first] == 1
    without = int(np.flatnonzero(np.argsort(-fitted.ranker_.predict(queries[:1])) == first)[0]) + 1
    assert explained.rank_without[first] == without
    line = f"1st: d{first}, chosen {found.choices[first]:.0f} times in {found.looks[first]:.0f} looks for this query"
    assert line in str(explained)
    moved = [row for row in range(10) if explained.rank[row] != explained.rank_without[row]]
    assert moved
    assert str(explained).count("; without that it would be") == len(moved)
    [unknown] = fitted.explain(queries[80])
    assert "no evidence of what people chose" in str(unknown)


@pytest.fixture(scope="module")
def families() -> QuerySet:
    """Return queries of 12 families that want the same documents, which features do not tell."""
    rng = np.random.default_rng(5)
    family = np.repeat(np.arange(12), 20)
    wanted = rng.integers(0, 3, (12, 10))
    return QuerySet.from_arrays(
        rng.standard_normal((2_400, 2)),
        wanted[family].ravel(),
        qid=np.repeat(np.arange(240), 10),
        doc_id=[f"{kind}-{document}" for kind in family for document in range(10)],
        query_columns={
            "text": [f"family {kind} member {number}" for number, kind in enumerate(family)],
            "vector": np.eye(12)[family] + 0.05 * rng.standard_normal((240, 12)),
        },
    )


def test_similar_queries_lend_their_choices_if_that_helps(families: QuerySet, tmp_path: Path):
    order = np.random.default_rng(0).permutation(240)
    known, new = families[np.sort(order[:200])], families[np.sort(order[200:])]
    evidence = watched(known.replace(qid=known.query_columns["text"]), 3)
    ranker = ChoiceRanker("single", evidence).fit(known)
    alone = ChoiceRanker("single", evidence, similar=False).fit(known)
    assert ranker.posterior_.discount > 0
    assert ranker.score(known) > alone.score(known) + 0.02
    assert ranker.score(new) > alone.score(new) + 0.1
    assert "a look for a similar query counts as" in ranker.remarks()[-1]
    assert len(alone.remarks()) == 1
    text = str(ranker.explain(new[0])[0])
    family = new.query_columns["text"][0].rpartition(" member")[0]
    assert f"for *{family} member" in text
    assert "for this query" not in text
    first = new.take_rows(np.arange(1))
    recalled = ranker.remembered(first, 3)
    assert len(set(recalled)) == 3
    assert {document.partition("-")[0] for document in recalled} == {first.doc_id[0].partition("-")[0]}
    assert first.doc_id[0] not in recalled
    assert alone.remembered(first, 3) == []
    ranker.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert np.array_equal(twin.predict(families), ranker.predict(families))
    assert str(twin.explain(new[0])[0]) == text
    assert twin.remembered(first, 3) == recalled
    by_text = families.replace(query_columns={"text": families.query_columns["text"]})
    spoken = ChoiceRanker("single", evidence).fit(by_text[np.sort(order[:200])])
    assert spoken.combined_.kin is not None
    spoken.save(tmp_path / "spoken")
    assert np.array_equal(load(tmp_path / "spoken").predict(by_text), spoken.predict(by_text))


def test_a_judgment_moves_similar_queries_by_the_learned_discount(families: QuerySet, tmp_path: Path):
    texts = families.query_columns["text"]
    judged, asked = families[np.arange(240) % 20 != 0], families[np.arange(240) % 20 == 0]
    evidence = watched(judged.replace(qid=judged.query_columns["text"]), 3)
    ranker = ChoiceRanker("single", evidence).fit(judged)
    assert ranker.posterior_.discount > 0
    before = ranker.predict(asked)
    last = int(np.argmin(before[:10]))
    grades = np.full(10, np.nan, dtype=np.float32)
    grades[last] = 3
    edited = families[5].replace(y=grades, qid=np.array([9_999]))
    ranker.add(edited)
    after = ranker.predict(asked)
    assert after[last] > before[last]
    assert np.array_equal(np.delete(after, last), np.delete(before, last))  # other documents, other families
    assert f"1000 times in 1000 looks for *{texts[5]}*" in str(ranker.explain(asked[0])[0])
    ranker.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert np.array_equal(twin.predict(asked), after)
    assert np.array_equal(twin.remove([9_999]).predict(asked), before)
    assert np.array_equal(ranker.remove([9_999]).predict(asked), before)


def test_similar_queries_count_nothing_if_they_do_not_help(fitted: ChoiceRanker):
    assert fitted.posterior_.discount == 0
    assert fitted.combined_.kin is None
    assert "does not help on this log: discount 0" in fitted.remarks()[-1]


def test_own_evidence_is_not_also_that_of_a_similar_query(families: QuerySet):
    evidence = watched(families.replace(qid=families.query_columns["text"]), 3)
    ranker = ChoiceRanker("single", evidence).fit(families)
    kin, query = ranker.combined_.kin, families[7]
    assert kin is not None
    distances, places = kin.neighbors(query)
    assert not np.isfinite(distances[places == 7]).any()
    others = families[np.arange(len(families)) != 7]
    looks = kin.totals(query, (distances, places), 1e6).looks
    nearest = [families.query_columns["text"][place] for place in places[0] if place != 7]
    part = others[np.isin(others.query_columns["text"], nearest)]
    seen = evidence.totals(part).looks
    expected = [seen[part.doc_id == document].sum() for document in query.doc_id]
    assert looks == pytest.approx(expected)
    assert f"for *{query.query_columns['text'][0]}*" not in str(ranker.explain(query)[0])


def test_similar_queries_are_not_tried_if_the_model_of_examination_does_not_fit(families: QuerySet):
    evidence = watched(families.replace(qid=families.query_columns["text"]), 3)
    biased = Evidence(evidence.get_state(), {"examination": {"fits": False}})
    ranker = ChoiceRanker("single", biased).fit(families)
    assert ranker.combined_.kin is None
    assert "similar queries do not count" in ranker.remarks()[-1]


def test_a_fitted_ranker_is_calibrated_on_queries_that_it_has_not_seen(queries: QuerySet, evidence: Evidence):
    ranker = SingleRanker().fit(queries[:40])
    both = ChoiceRanker(ranker, evidence, prefit=True, similar=False).fit(queries[:80])
    unseen = ChoiceRanker(ranker, evidence, prefit=True, similar=False).fit(queries[40:80])
    assert np.array_equal(both.predict(queries), unseen.predict(queries))


def test_a_fitted_ranker_is_calibrated_on_its_own_queries_if_people_chose_for_no_other(
    queries: QuerySet, evidence: Evidence
):
    ranker = SingleRanker().fit(queries[:80])
    choices = ChoiceRanker(ranker, evidence, prefit=True, similar=False).fit(queries)  # of the first 80 alone
    assert np.isfinite(choices.predict(queries)).all()
    assert choices.score(queries[:80]) > ranker.score(queries[:80])


def test_a_fitted_ranker_needs_no_grades_if_there_is_evidence(queries: QuerySet, evidence: Evidence):
    ranker = SingleRanker().fit(queries[80:])
    graded, *others = (
        ChoiceRanker(ranker, evidence, prefit=True, similar=False).fit(queries[:80].replace(y=y)).predict(queries)
        for y in (queries[:80].grades, None, np.zeros(queries[:80].n_rows, dtype=np.float32))
    )
    assert all(np.array_equal(graded, other) for other in others)
    with pytest.raises(DataError, match="nobody chose a candidate of these queries"):
        ChoiceRanker(ranker, evidence, prefit=True).fit(queries[80:].replace(y=None))
    with pytest.raises(DataError, match="not judged"):
        ChoiceRanker(ranker, prefit=True).fit(queries[80:].replace(y=None))


def test_the_day_at_which_live_evidence_takes_over_counts_once():
    asked = QuerySet.from_arrays([[1.0]], qid=[1], doc_id=["d7"], query_columns={"text": ["alien"]})

    def days(*numbers: int) -> Evidence:
        one = np.ones(len(numbers))
        return Evidence.from_cells(["alien"] * len(numbers), ["d7"] * len(numbers), one, 0 * one, numbers)

    parts = evidence_parts(days(100, 101), days(100, 101, 102), LiveJudgments.none(np.array([1])), None)
    assert total_evidence(asked, parts).looks.tolist() == [3.0]
    key = query_keys(np.array(["alien"]))[0]
    assert sum(part.evidence.of_query(key, **part.counted)[1].looks.sum() for part in parts) == 3.0


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
        parts = evidence_parts(folder, recent, LiveJudgments.none(np.array([1])), half_life=1.0)
        assert total_evidence(asked, parts).looks.tolist() == [4.0]  # two of the four are left, and two of today
        key = query_keys(np.array(["alien"]))[0]
        assert sum(part.evidence.of_query(key, **part.counted)[1].looks.sum() for part in parts) == 4.0
        assert folder.merged(recent).days == (today - 1, today)
