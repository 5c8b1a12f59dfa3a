from __future__ import annotations

import numpy as np
import pytest

from kinrank.clicks.examination import MODELS, estimate_examination
from kinrank.clicks.posterior import estimate_attractiveness
from kinrank.errors import DataError, ParameterError
from tests.clicks.conftest import Simulate


def test_swaps_recover_the_curve(simulate: Simulate):
    found = estimate_examination(simulate(severity=1.0), "swaps")
    truth = 1 / found.ranks
    assert found.slope == pytest.approx(truth, rel=0.08)
    assert np.all((found.low <= truth) & (truth <= found.high))
    assert found.verdict.startswith("Identifiable for 5 of 5 ranks")
    assert found.warnings == ()


def test_expectation_maximization_is_close(simulate: Simulate):
    found = estimate_examination(simulate(n_lists=300), "pbm")
    assert found.slope == pytest.approx(1 / found.ranks, rel=0.1)


def test_a_frozen_ranking_is_refused(simulate: Simulate):
    counts = simulate(shuffle=0.0)
    for model in ("swaps", "pbm", "trust"):
        with pytest.raises(DataError, match=r"Not identifiable: 0% of the impressions.*none, coec or cascade"):
            estimate_examination(counts, model)
    assert estimate_examination(counts, "none").slope.tolist() == [1.0] * 5


@pytest.mark.parametrize("user", ["cascade", "trust"])
def test_a_model_that_does_not_fit_is_flagged(simulate: Simulate, user: str):
    found = estimate_examination(simulate(user=user, n_lists=200), "swaps")
    assert "The position-based model does not fit" in found.warnings[0]


def test_trust_bias_is_corrected(simulate: Simulate):
    found = estimate_examination(simulate(user="trust", n_lists=250), "trust")
    # Agarwal et al.: P(click at k) = (1 / k) (plus_k α + minus_k (1 - α)), here relative to the first rank
    rank = found.ranks
    plus, minus = 1 - (rank + 1) / 100, 0.65 / rank
    slope = (plus - minus) / rank
    offset = minus / rank - minus[0] * slope / slope[0]
    assert found.slope == pytest.approx(slope / slope[0], rel=0.25)
    assert found.offset == pytest.approx(offset, abs=0.1)


def test_the_cascade_uses_what_was_examined(simulate: Simulate):
    counts = simulate(user="cascade", cascade=True)
    found = estimate_attractiveness(counts, estimate_examination(counts, "cascade"))
    examined = counts.by_pair(counts.examined)
    often = examined > 100
    rate = counts.by_pair(counts.clicks)[often] / examined[often]
    assert found.mean[often] == pytest.approx(rate, abs=0.1)
    assert counts.examined.sum() < counts.impressions.sum()


def test_unknown_models_are_refused(simulate: Simulate):
    with pytest.raises(ParameterError, match="choose one of " + ", ".join(MODELS)):
        estimate_examination(simulate(), "dbn")
