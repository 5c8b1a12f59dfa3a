"""The tables and figures of four papers, measured again on public data and held against what the papers say.

    pieces of work -> kept in an output folder -> figures -> claims judged -> page and pictures

A *part* (`reproduction.parts`) is one experiment of a paper. It is done in *pieces*, each of which is kept
when finished, so that a run that was killed goes on where it stopped. What the papers say, and whether we expect it to
hold, is in ``expected/*.toml``.
"""

from __future__ import annotations

PAPERS = {
    "geng": "Geng et al., Query Dependent Ranking Using K-Nearest Neighbor, SIGIR 2008",
    "local-models": "Query-dependent ranking by local models with rank aggregation, evaluated on LETOR 4.0",
    "atvt": "Zha et al., Incorporating Query Difference for Learning Retrieval Functions, CIKM 2006",
    "sser": "Hoi and Jin, Semi-Supervised Ensemble Ranking, AAAI 2008",
}
"""Name of a paper on the command line to what it is."""
