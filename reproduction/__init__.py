"""Measure the tables and figures of four papers again on public data, and check what the papers claim about them.

    tasks -> cached results -> figures -> verdicts on claims -> page and plots

An *experiment* (`reproduction.experiments`) measures one table or figure of a paper. It consists of *tasks*. The result
of each finished task is cached, so an interrupted run resumes where it stopped. ``expected/*.toml`` lists the claims of
the papers and whether we expect them to hold.
"""

from __future__ import annotations

PAPERS = {
    "geng": "Geng et al., Query Dependent Ranking Using K-Nearest Neighbor, SIGIR 2008",
    "local-models": "Query-dependent ranking by local models with rank aggregation, evaluated on LETOR 4.0",
    "atvt": "Zha et al., Incorporating Query Difference for Learning Retrieval Functions, CIKM 2006",
    "sser": "Hoi and Jin, Semi-Supervised Ensemble Ranking, AAAI 2008",
}
"""Citation of each paper, by its name on the command line."""
