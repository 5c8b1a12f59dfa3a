"""Hoi and Jin, Table 3: seconds to train RankSVM and SER, and to rank a query with SSER, on the 25 rankers of OHSUMED.

CPU seconds of one thread, the least of three: what a figure of time can say on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.rankers.ensemble import EnsembleRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, DataFolder, letor_files
from reproduction.part import Findings, Part, Piece
from reproduction.parts.ensemble import COLLECTION

REPEATS = 3


def one_fold(fold: int, data: DataFolder) -> Findings:
    """Seconds of each."""
    train, _, test = data.letor_fold(COLLECTION, fold)
    fitted = EnsembleRanker(0.5, normalize="none", orient=False).fit(train)
    return Findings(
        {
            "RankSVM, train": _seconds(lambda: SingleRanker("ranksvm").fit(train)),
            "SER, train": _seconds(lambda: EnsembleRanker(0.0, normalize="none", orient=False).fit(train)),
            "SSER, a query": _seconds(lambda: fitted.predict(test)) / len(test),
        }
    )


def _seconds(call: Callable[[], object]) -> float:
    call()  # compiles what is not compiled yet
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def summary(found: Mapping[str, Findings]) -> dict[str, Any]:
    """By trial and on average, and how many times longer RankSVM trains than SER."""
    names = list(found["fold 1"].figures)
    seconds = {name: [round(fold.figures[name], 4) for fold in found.values()] for name in names}
    means = {name: float(np.mean([fold.figures[name] for fold in found.values()])) for name in names}
    return {
        "seconds": seconds,
        "mean seconds": {name: round(mean, 4) for name, mean in means.items()},
        "RankSVM over SER": round(means["RankSVM, train"] / means["SER, train"], 2),
    }


PART = Part(
    "ensemble-time",
    "sser",
    {f"fold {fold}": Piece(partial(one_fold, fold), letor_files(COLLECTION), 0.02) for fold in FOLDS},
    summary,
)
