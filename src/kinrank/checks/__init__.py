"""Check suites for learners and rankers. The tests run them on all that are registered.

``for check in ranker_checks(): check(MyRanker)`` runs the suite on your own ranker. A failed check raises
AssertionError with the rule that was broken.
"""

from kinrank.checks.learners import learner_checks
from kinrank.checks.rankers import ranker_checks

__all__ = ["learner_checks", "ranker_checks"]
