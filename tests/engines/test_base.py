from __future__ import annotations

import numpy as np
import pytest

from kinrank.errors import EngineTimeoutError
from tests.engines.toy import ToyEngine


def test_search_features_are_those_of_the_hits():
    hits, X = ToyEngine().search_features("red", size=3)
    assert hits.doc_id.tolist() == ["d0", "d1", "d2"]
    np.testing.assert_array_equal(X, [[0, 1], [1, np.nan], [2, 1]])


def test_search_features_raises_if_the_search_takes_all_the_time():
    with pytest.raises(
        EngineTimeoutError, match="the search took all of the 0 s; allow more with --set timeout=SECONDS of kinrank log"
    ):
        ToyEngine().search_features("red", size=3, timeout=0.0)
