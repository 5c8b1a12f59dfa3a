"""Every registered learner passes the learner checks."""

from __future__ import annotations

from functools import partial

import pytest

from kinrank.checks import LearnerCheck, learner_checks
from kinrank.learn import LEARNERS, make_learner
from kinrank.learn.base import Learner
from kinrank.learn.ranksvm import RankSVM

MAKERS = {name: partial(make_learner, name) for name in LEARNERS} | {"ranksvm hinge": partial(RankSVM, loss="hinge")}


@pytest.mark.parametrize("check", learner_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_learner_passes_check(make: partial[Learner], check: LearnerCheck) -> None:
    check(make)
