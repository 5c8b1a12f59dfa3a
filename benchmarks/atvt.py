"""aTVT compared with the same boosted trees without it: DCG@5 on MQ2007, MQ2008, OHSUMED and MSRD.

The paper (Zha et al. 2006) reports gains of about 2% (English) and 1% (Chinese) over its own boosting.
`reproduction.experiments.atvt` describes the setup.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Return the figures of each collection."""
    return reproduce("atvt")
