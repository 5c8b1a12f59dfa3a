"""Learning all m local models in advance costs at most ten times one global fit, for RankRLS on MSRD, two threads.

The paper estimates k (k/m)^(c-1) times a global fit, with c between 1.2 and 2: hundreds of times at its sizes. With
additive statistics, a model is one sum and one solve. Both fits are complete: feature scaling, statistics, and for the
offline models also the description, m neighbor searches and m solves. k = 400, the paper's description. The offline
models are learned with one thread per core (the default), and with one thread.
"""

from __future__ import annotations

from benchmarks.common import interleaved, medians, msrd
from kinrank import KnnRanker, SingleRanker


def run() -> dict[str, object]:
    """Return the seconds of each fit, and the ratio."""
    train = msrd()["train"]
    seconds = medians(
        interleaved(
            {
                "Single": lambda: SingleRanker("rankrls").fit(train),
                "offline": lambda: offline(None).fit(train),
                "offline, one thread": lambda: offline(1).fit(train),
            },
            repeats=5,
        )
    )
    m = len(train)
    return {
        "models": m,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "times one global fit": round(seconds["offline"] / seconds["Single"], 1),
        "with one thread": round(seconds["offline, one thread"] / seconds["Single"], 1),
        "the paper's estimate, c = 1.2 to 2": [round(400 * (400 / m) ** (c - 1)) for c in (1.2, 2.0)],
    }


def offline(n_jobs: int | None) -> KnnRanker:
    """Return an unfitted ranker that learns all models in advance."""
    return KnnRanker.as_published(400, mode="offline-2", reference="bm25_all", n_jobs=n_jobs)
