"""Check that models rank alike with other versions of the libraries.

``python scripts/saved_models.py save FOLDER`` fits models of several rankers, and saves them with the scores of queries
that they have not seen. ``python scripts/saved_models.py check FOLDER``, in an environment with other versions, loads
the models and compares. The difference must be 0, except for rankers that solve linear systems when
they rank: these may differ by rounding.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

import kinrank
from kinrank import KinRanker, KnnRanker, SingleRanker
from kinrank.datasets import make_intents

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "lightgbm")
ROUNDING = 1e-9
# Each ranker, and how much its scores may differ.
RANKERS = {
    "single": (SingleRanker(), 0.0),
    "lambdamart": (SingleRanker(learner="lambdamart"), 0.0),
    "knn": (KnnRanker(20), ROUNDING),
    "kin": (KinRanker(), ROUNDING),
}


def save(folder: Path) -> None:
    """Fit and save the models."""
    queries = make_intents(300, 50, seed=0)
    for name, (ranker, _) in RANKERS.items():
        ranker.fit(queries[:300]).save(folder / name)
        np.save(folder / f"{name}.npy", ranker.predict(queries[300:]))


def check(folder: Path) -> int:
    """Load the models and print the largest difference of each; return 1 if one is too large."""
    queries = make_intents(300, 50, seed=0)[300:]
    failed = False
    for name, (_, allowed) in RANKERS.items():
        expected = np.load(folder / f"{name}.npy")
        scores = kinrank.load(folder / name).predict(queries)
        difference = float(np.max(np.abs(scores - expected)) / np.ptp(expected))
        same = np.array_equal(np.argsort(scores, kind="stable"), np.argsort(expected, kind="stable"))
        print(f"{name:12} largest difference {difference:.1e} of the range, order {'the same' if same else 'DIFFERS'}")
        failed |= not same or difference > allowed
    return int(failed)


if __name__ == "__main__":
    print(", ".join(f"{library} {version(library)}" for library in LIBRARIES))
    command, folder = sys.argv[1], Path(sys.argv[2])
    sys.exit(save(folder) if command == "save" else check(folder))
