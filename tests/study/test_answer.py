from __future__ import annotations

import numpy as np
import pytest

from kinrank import CellRanker, KinRanker, KnnRanker, SingleRanker
from kinrank.measure import compare_paired, holm
from kinrank.study._answer import RUNGS, Claim, answer
from kinrank.study.ladder import ladder, rung_of

RNG = np.random.default_rng(0)
BASE = RNG.random(400) / 2


def shifted(mean: float, n: int = 400) -> np.ndarray:
    """Return values whose mean is exactly `mean` above `BASE`."""
    noise = RNG.normal(0, 0.02, n)
    return BASE[:n] + noise - noise.mean() + mean


def claim(mean: float, n: int = 400, **settings: float) -> Claim:
    paired = compare_paired(shifted(mean, n), BASE[:n])
    return Claim("kin", "LightGBM", paired, **settings)


@pytest.mark.parametrize(
    ("made", "verdict", "sentence"),
    [
        (claim(0.01), "gain", "kin gains +0.0100 over LightGBM"),
        (claim(-0.01), "loss", "kin loses 0.0100 to LightGBM"),
        (claim(0.0004), "none", "kin is 0.0004 higher than LightGBM, which is not significant"),
        (claim(0.001, 20), "unclear", "kin is 0.0010 higher than LightGBM, which is not significant"),
        (claim(-0.001, 20), "unclear", "kin is 0.0010 lower than LightGBM, which is not significant"),
        (Claim("kin", "LightGBM", compare_paired(BASE, BASE)), "none", "kin and LightGBM have the same mean"),
    ],
)
def test_claim_has_a_verdict_and_both_names(made: Claim, verdict: str, sentence: str):
    assert (made.verdict, made.sentence()) == (verdict, sentence)


def test_own_models_are_credited_with_the_last_step_only():
    trees = shifted(0.2)
    found = answer({"linear": BASE, "trees": trees, "without": trees + 0.03, "kin": trees + 0.04})
    assert (found.gain.against, found.own.against) == (RUNGS["trees"], RUNGS["without"])
    assert "kin gains +0.0400 over LightGBM" in found.text
    assert "+0.0100 of it comes from weights per query" in found.text
    assert (found.verdict, found.own_verdict) == ("gain", "gain")


def test_gain_without_own_models_is_not_called_theirs():
    trees = shifted(0.2)
    found = answer({"linear": BASE, "trees": trees, "without": trees + 0.04, "kin": trees + 0.04})
    assert (found.verdict, found.own_verdict) == ("gain", "none")
    assert "that weights per query add to it is not shown (+0.0000, 95% interval" in found.text


def test_memory_is_a_question_of_their_own():
    trees = shifted(0.2)
    values = {"linear": BASE, "trees": trees, "without": trees + 0.04, "kin": trees + 0.04}
    alone, found = answer(values), answer({**values, "memory": trees + 0.01})
    assert (found.gain, found.own) == (alone.gain, alone.own)
    assert "LightGBM with everyone and kin gains +0.0100 over LightGBM (95% interval" in found.text


def test_first_line_says_what_to_do_and_from_which_mean_to_which():
    trees = shifted(0.2)
    values = {"engine": BASE, "linear": BASE, "trees": trees, "everyone": trees + 0.01, "kin": trees + 0.04}
    found, mean = answer(values), BASE.mean()
    assert found.line.startswith(
        f"Use kin. Measured: the engine has {mean:.4f}, LightGBM {mean + 0.2:.4f}, kin {mean + 0.24:.4f} (+0.0400"
    )
    assert [(name, round(step or 0, 4)) for name, _, step in found.steps] == [
        ("the engine as it is", 0),
        ("LightGBM", 0.2),
        ("LightGBM with everyone", 0.01),
        ("kin", 0.03),
    ]
    best = answer({**values, "engine": trees + 0.5})
    assert best.line.startswith("Keep the engine as it is: it is better and simpler. Measured: the engine as it is ")


def test_better_of_the_two_single_models_is_the_baseline():
    found = answer({"linear": shifted(0.3), "trees": BASE, "without": BASE, "kin": shifted(0.3)})
    assert found.gain.against == RUNGS["linear"]
    assert found.verdict != "gain"
    assert "Keep one linear model" in found.text


def test_linear_models_per_query_are_named_if_they_are_better():
    values = {"linear": BASE, "trees": BASE, "without": BASE, "kin": shifted(0.1), "local": shifted(0.2)}
    assert answer(values).text.endswith("But a linear model per query gains +0.1000 over kin: compare knn.")
    assert "compare knn" not in answer(values | {"local": values["kin"]}).text


def test_p_values_are_corrected_for_both_claims():
    values = {"linear": BASE, "trees": shifted(0.1), "without": shifted(0.1), "kin": shifted(0.102)}
    found = answer(values)
    assert [found.gain.p_holm, found.own.p_holm] == holm([found.gain.paired.p, found.own.paired.p]).tolist()
    for claim in (found.gain, found.own):
        assert claim.tested == f"p = {claim.paired.p:.2g}, {claim.p_holm:.2g} after Holm's correction for 2 claims"
    alone = answer({"linear": BASE, "local": shifted(0.001)}).gain
    assert alone.tested == f"p = {alone.paired.p:.2g}"


def test_groups_of_queries_vary_together():
    groups = np.arange(400) // 40
    values = {"linear": BASE, "local": BASE + RNG.normal(0.01, 0.02, 10)[groups]}
    by_query, by_group = (answer(values, groups=each).gain for each in (None, groups))
    assert by_query.paired.mean_difference == by_group.paired.mean_difference
    assert (by_query.paired.n_groups, by_group.paired.n_groups) == (None, 10)
    assert by_query.paired.p < by_group.paired.p


def test_what_is_not_ruled_out_names_the_loss_as_well():
    found = answer({"linear": BASE[:20], "local": shifted(0.001, 20)})
    low, high = found.gain.paired.interval
    assert found.advice.endswith(f"a gain of up to {high:.4f} is not ruled out, nor is a loss of up to {-low:.4f}.")
    ruled_out = answer({"linear": BASE, "local": shifted(-0.0004)})
    assert ruled_out.advice == "Keep one linear model: a gain of 0.005 is ruled out, and it is simpler."


def test_names_and_notes():
    found = answer({"linear": BASE, "local": shifted(0.01)}, {"local": "knn(n_neighbors=5)", "linear": "./lin"})
    assert found.text.startswith("knn(n_neighbors=5) gains +0.0100 over ./lin")
    assert found.text.endswith("Trees were not measured.")
    assert found.own_verdict == "gain"
    unknown = answer({"linear": BASE, "trees": shifted(0.1), "kin": shifted(0.2)})
    assert unknown.own_verdict is None
    assert "was not measured" in unknown.text
    small = answer({"linear": BASE, "local": shifted(0.01)}, min_gain=0.05)
    assert "less than the minimum of 0.05" in small.text
    assert "judge more queries" in answer({"linear": BASE[:20], "local": shifted(0.001, 20)}).text
    assert answer({"linear": BASE, "trees": BASE}) is None
    assert answer({"kin": BASE}) is None


def test_every_rung_is_recognized():
    made = {
        rung: make()
        for rung, make in ladder(KinRanker(group_column="movie", settings={"reference": 2}), "bm25").items()
    }
    assert {rung: rung_of(ranker) for rung, ranker in made.items()} == {rung: rung for rung in RUNGS}
    assert made["local"].reference == 2
    assert made["bag"].group_column == made["trees"].group_column == "movie"
    assert [rung_of(each) for each in (SingleRanker("lambdamart"), CellRanker(), KnnRanker(), None, 3)] == [
        "trees",
        "local",
        "local",
        None,
        None,
    ]
