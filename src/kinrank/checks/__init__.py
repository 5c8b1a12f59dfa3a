"""Contracts as code: what every learner, ranker and engine must do, by being registered.

``for check in ranker_checks(): check(MyRanker)`` runs the suite on a ranker of your own. A failed check raises
AssertionError and says what was promised.
"""

from kinrank.checks.engines import engine_checks
from kinrank.checks.learners import learner_checks
from kinrank.checks.rankers import ranker_checks

__all__ = ["engine_checks", "learner_checks", "ranker_checks"]
