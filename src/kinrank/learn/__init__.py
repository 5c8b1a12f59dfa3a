"""Learners: fit a scoring function to judged queries."""

from __future__ import annotations

from sklearn.base import clone

from kinrank.errors import ParameterError
from kinrank.learn.base import Learner
from kinrank.registry import Registry

LEARNERS = Registry(
    "learner",
    {
        "ranksvm": "kinrank.learn.ranksvm:RankSVM",
        "rankrls": "kinrank.learn.rankrls:RankRLS",
        "lambdamart": "kinrank.learn.lambdamart:LambdaMART",
    },
)


def make_learner(learner: str | Learner) -> Learner:
    """Return a new unfitted learner, from its name or by cloning the one given.

    Examples
    --------
    >>> make_learner("rankrls(penalty=0.1)")
    RankRLS(penalty=0.1)
    """
    if isinstance(learner, str):
        made: Learner = LEARNERS.make(learner)
        return made
    if not isinstance(learner, Learner):
        raise ParameterError(f"learner must be a name or a Learner, got {learner!r}: choose from {list(LEARNERS)}")
    unfitted: Learner = clone(learner)
    return unfitted
